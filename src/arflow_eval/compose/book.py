"""From overrides to a checked configuration.

Hydra parses and composes. What it lets pass is refused here: unknown keys (also with `+`),
missing values, values of the wrong type, code outside this package.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from arflow_eval import keys, refusal
from arflow_eval.settings import evaluate_settings
from arflow_eval.values import did_you_mean

if TYPE_CHECKING:
    from omegaconf import DictConfig
else:  # its bases are typing's old ones, of which beartype warns where it checks types
    DictConfig = Any

Application = Literal["evaluate", "read"]
# A valid configuration that names an experiment, and those of its values that were given by key,
# -> the configuration that a registration locked in their place.
Arrange = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
HYDRA: Final = "1.3"


def conf_dir() -> Path:
    """The absolute folder of configurations: the package's own, else the repository's."""
    package = Path(__file__).resolve().parents[1]
    folders = (package / "conf", package.parents[1] / "conf")
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        raise refusal.usage(
            f"no configurations at {folders[0]}", expected="a conf folder", remedy="reinstall"
        )
    return found


def compose(application: Application, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of one run of an application: composed, resolved, checked, a plain dict."""
    with hydra_errors():
        book = open_book(application, overrides)
        return book.checked(single_run(book.task))


def valid(application: Application, overrides: Sequence[str]) -> dict[str, Any]:
    """As `compose`, but open where a required value is not given, and fit for nothing yet."""
    with hydra_errors():
        book = open_book(application, overrides)
        return book.valid(single_run(book.task))


def single_run(overrides: Sequence[Override]) -> list[str]:
    """Override lines of one run, none of which may list several values."""
    for override in overrides:
        if override.is_sweep_override():
            raise refusal.usage(
                f"{override.input_line} gives several values",
                expected="one value a key without --multirun",
                remedy="put --multirun first to sweep, or write a list as key=[a,b]",
            )
    return [str(override.input_line) for override in overrides]


@dataclass(frozen=True)
class Book:
    """An application's configurations, open at some overrides of Hydra's own and of the task.

    `composed` is the configuration without the task's overrides, Hydra's own node included;
    `groups` has the options of every group it chooses from.
    """

    application: Application
    own: tuple[str, ...]
    task: tuple[Override, ...]
    hydra: Hydra
    composed: DictConfig
    groups: Mapping[str, list[str]]
    arrange: Arrange | None = None
    _plain: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)

    def load(self, overrides: Sequence[str], *, mode: RunMode) -> DictConfig:
        """The configuration as Hydra composes it, its own node included."""
        return self.hydra.compose_config(
            config_name=self.application, overrides=[*self.own, *overrides], run_mode=mode
        )

    def plain(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration as Hydra composes it, resolved, without Hydra's own node."""
        lines = tuple(overrides)
        if lines not in self._plain:  # composing takes a tenth of a second
            composed = self.load(lines, mode=RunMode.RUN) if lines else self.composed
            self._plain[lines] = _task_node(composed)
        return copy.deepcopy(self._plain[lines])

    def valid(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration with every key known and every value of its type."""
        parsed = parse(overrides)
        chosen = [_check_choice(it, self.groups) for it in parsed if it.key_or_group in self.groups]
        base = self.plain(chosen)
        known = keys.leaves(base)
        for override in parsed:
            if override.key_or_group not in self.groups:
                _check_key(override, {*known, *keys.branches(known), *self.groups})
        config = self.plain(overrides)
        keys.check_values(base, config)
        keys.check_targets(config)
        return config

    def checked(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration of a run: valid, complete and fit for its application."""
        config = self.valid(overrides)
        locked = config.get("experiment") is not None
        if locked and self.arrange is not None:
            config = self.arrange(config, self.given(overrides))
        # oracles read made arms, an experiment its own
        optional = {"arms"} if locked or config.get("oracle") is True else set()
        keys.check_missing({key: node for key, node in config.items() if key not in optional})
        if self.application == "evaluate":
            evaluate_settings(config)
        return config

    def given(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The values that overrides give, by dotted key; an option gives all keys of its group."""
        config = keys.leaves(self.plain(overrides))
        named = [override.key_or_group for override in parse(overrides)]
        return {
            key: value
            for key, value in config.items()
            if any(key == name or key.startswith(f"{name}.") for name in named)
        }


def open_book(
    application: Application, overrides: Sequence[str], *, arrange: Arrange | None = None
) -> Book:
    """An application's configurations and the options of its groups, before any task override."""
    parsed = parse(overrides)
    own = tuple(str(it.input_line) for it in parsed if it.is_hydra_override())
    task = tuple(it for it in parsed if not it.is_hydra_override())
    hydra, composed, groups = _library(application, own)
    node = cast("dict[str, Any]", OmegaConf.to_container(composed.hydra, resolve=False))
    keys.check_targets({"hydra": node}, within=("hydra.", "hydra_plugins."))
    return Book(application, own, task, hydra, composed, groups, arrange)


@functools.cache
def _library(
    application: Application, own: tuple[str, ...]
) -> tuple[Hydra, DictConfig, dict[str, list[str]]]:
    version.setbase(HYDRA)
    path = create_config_search_path(str(conf_dir()))
    hydra = Hydra(task_name=application, config_loader=ConfigLoaderImpl(path))
    composed = hydra.compose_config(
        config_name=application, overrides=list(own), run_mode=RunMode.RUN
    )
    names = [str(name) for name in composed.hydra.runtime.choices]
    groups = {
        name: hydra.config_loader.get_group_options(
            name, ObjectType.CONFIG, config_name=application, overrides=list(own)
        )
        for name in names
        if "/" not in name
    }
    return hydra, composed, groups


def parse(overrides: Sequence[str], *, loader: ConfigLoader | None = None) -> list[Override]:
    """Override lines as Hydra reads them, or a refusal of the first that it cannot read.

    A `glob` over a group's options needs the loader that knows them.
    """
    parser = OverridesParser.create(config_loader=loader)
    parsed: list[Override] = []
    for line in overrides:
        try:
            (override,) = parser.parse_overrides([line])
        except HydraException as error:
            raise _unreadable(line) from error
        if not override.key_or_group:
            raise _unreadable(line)
        parsed.append(override)
    return parsed


def _unreadable(line: str) -> refusal.Refusal:
    return refusal.usage(
        f"cannot read the override {line!r}",
        expected="key=value",
        remedy="check the brackets, and quote special characters: 'key=\"a, b\"'",
    )


def _check_choice(override: Override, groups: Mapping[str, list[str]]) -> str:
    """The override line of a group, if it names one of the group's options."""
    group, line = override.key_or_group, str(override.input_line)
    options = groups[group]
    plain = override.get_key_element() == group
    if plain and override.value() in options:
        return line
    given = line.partition("=")[2]
    remedy = (
        did_you_mean(group, given, options) if plain else f"write {group}={given or options[0]}"
    )
    raise refusal.usage(
        f"unknown option {line}" if plain else f"cannot choose an option by {line}",
        expected=f"{group}= one of {', '.join(options)}",
        remedy=remedy or f"choose one, such as {group}={options[0]}",
    )


def _check_key(override: Override, known: set[str]) -> None:
    key, line = override.key_or_group, str(override.input_line)
    if key not in known or override.package is not None:
        raise keys.unknown_key(override.get_key_element().lstrip("+~"), known)
    if override.is_delete():
        raise refusal.usage(
            f"{line} removes a key", expected="every key present", remedy=f"set it: {key}=null"
        )
    if override.is_add() or override.is_force_add():
        raise refusal.usage(
            f"{line} adds a key that exists",
            expected=f"{key}=… without the +",
            remedy=f"write {line.lstrip('+')}",
        )


def _task_node(composed: DictConfig) -> dict[str, Any]:
    task = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    return cast("dict[str, Any]", OmegaConf.to_container(task, resolve=True))


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise into refusals of one line."""
    try:
        yield
    except MissingConfigException as error:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        options = list(error.options or [])
        raise refusal.usage(
            f"unknown option {group}={option}",
            expected=f"one of {', '.join(options)}" if options else "a group of Hydra's",
            remedy=did_you_mean(group, option, options) or "install the package that brings it",
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        reasons = [str(it).strip().partition("\n")[0] for it in (error, error.__cause__)]
        reasons = [reason.rstrip(".") for reason in reasons if reason not in ("", "None")]
        raise refusal.usage(
            ": ".join(reasons) or type(error).__name__,
            expected="overrides that Hydra can compose",
            remedy="--cfg job shows every key, --hydra-help the flags",
        ) from error
