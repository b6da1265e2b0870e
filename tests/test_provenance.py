import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arflow_eval import provenance
from arflow_eval.refusal import Refusal

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


# --- values ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(JSON)
def test_canonical_text_reads_back_as_the_value(value: object) -> None:
    assert json.loads(provenance.canonical(value)) == value


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_the_order_of_keys_changes_no_digest(value: dict[str, object]) -> None:
    backwards = dict(reversed(value.items()))
    assert provenance.digest(backwards) == provenance.digest(value)


def test_the_canonical_text_is_the_documented_one() -> None:
    assert provenance.canonical({"b": [1, 0.5], "a": "é"}) == '{"a":"é","b":[1,0.5]}'.encode()


def test_a_digest_is_the_sha256_of_the_canonical_text() -> None:
    empty_object = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert provenance.digest({}) == empty_object


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_has_no_canonical_text(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        provenance.canonical({"loss": [value]})


# --- folders --------------------------------------------------------------------------------


def checkpoint(folder: Path, **changed: str) -> Path:
    files = {"config.json": "{}", "model.safetensors": "weights", "README.md": "a card"}
    for name, text in {**files, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_same_weights_under_another_path_are_the_same(tmp_path: Path) -> None:
    one = provenance.folder_digest(checkpoint(tmp_path / "one"))
    assert provenance.folder_digest(checkpoint(tmp_path / "deep" / "two")) == one


@pytest.mark.parametrize("ignored", ["README.md", "notes/more.md", ".gitattributes", ".cache/etag"])
def test_notes_and_hidden_files_are_no_part_of_a_checkpoint(tmp_path: Path, ignored: str) -> None:
    one = provenance.folder_digest(checkpoint(tmp_path / "one"))
    two = provenance.folder_digest(checkpoint(tmp_path / "two", **{ignored: "changed"}))
    assert one == two


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json", "tokenizer/vocab.json"])
def test_a_changed_or_added_file_is_another_checkpoint(tmp_path: Path, changed: str) -> None:
    one = provenance.folder_digest(checkpoint(tmp_path / "one"))
    two = provenance.folder_digest(checkpoint(tmp_path / "two", **{changed: "changed"}))
    assert one != two


def test_a_renamed_file_is_another_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "one")
    before = provenance.folder_digest(folder)
    (folder / "config.json").rename(folder / "settings.json")
    assert provenance.folder_digest(folder) != before


def test_a_checkpoint_that_is_a_link_counts_by_its_content(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "one")
    before = provenance.folder_digest(folder)
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    assert provenance.folder_digest(folder) == before


def test_a_missing_checkpoint_is_answered_with_the_nearest(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ar_tiny")
    with pytest.raises(Refusal, match=r"no folder .*did you mean .*ar_tiny\?") as caught:
        provenance.folder_digest(tmp_path / "ar_tinny")
    assert caught.value.exit_code == 2


def test_an_empty_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(Refusal, match="is empty") as caught:
        provenance.folder_digest(tmp_path / "one")
    assert caught.value.exit_code == 2


# --- code -----------------------------------------------------------------------------------

MODULES = {
    "__init__.py": "from house.offered import name\n",
    "offered.py": "name = 1\n",
    "start.py": '''"""What this is."""

from typing import TYPE_CHECKING

from house import direct
from house.deep.inner import VALUE

if TYPE_CHECKING:
    from house import types_only


def work(count):
    """Work."""
    from house.deep import late  # a comment
    return late.run(f"{count!r:>{VALUE}} {{x}}", direct.LIMIT)
''',
    "direct.py": "LIMIT = 3\n",
    "types_only.py": "X = 1\n",
    "unrelated.py": "X = 1\n",
    "deep/__init__.py": "from . import beside\n",
    "deep/beside.py": "X = 1\n",
    "deep/inner.py": "from ..up import UP\nVALUE = UP\n",
    "deep/late.py": "import house.direct\nrun = print\n",
    "up.py": "UP = 9\n",
}


def house(folder: Path, changed: dict[str, str] | None = None) -> Path:
    for name, text in {**MODULES, **(changed or {})}.items():
        place = folder / "house" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder / "house"


def started(folder: Path, changed: dict[str, str] | None = None) -> str:
    return provenance.code_digest(["house.start"], package=house(folder, changed))


@pytest.mark.parametrize(
    "module",
    ["direct.py", "deep/__init__.py", "deep/beside.py", "deep/inner.py", "deep/late.py", "up.py"],
)
def test_a_change_in_any_imported_module_is_another_code(tmp_path: Path, module: str) -> None:
    changed = {module: MODULES[module] + "ADDED = 1\n"}
    assert started(tmp_path / "one") != started(tmp_path / "two", changed)


@pytest.mark.parametrize("module", ["types_only.py", "unrelated.py", "offered.py", "__init__.py"])
def test_a_change_in_a_module_that_is_not_imported_is_the_same_code(
    tmp_path: Path, module: str
) -> None:
    assert started(tmp_path / "one") == started(tmp_path / "two", {module: "X = 2\n"})


def test_a_name_taken_from_the_package_itself_brings_its_init(tmp_path: Path) -> None:
    start = {"start.py": "from house import name\n"}
    moved = {**start, "offered.py": "name = 2\n"}
    assert started(tmp_path / "one", start) != started(tmp_path / "two", moved)


def test_the_branch_beside_type_checking_counts(tmp_path: Path) -> None:
    branches = "if typing.TYPE_CHECKING:\n    X = 1\nelse:\n    from . import up\n"
    start = {"start.py": f"import typing\n{branches}"}
    moved = {**start, "up.py": "UP = 10\n"}
    assert started(tmp_path / "one", start) != started(tmp_path / "two", moved)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# a comment", "# another"),
        ("  # a comment", ""),
        ('"""Work."""', '"""Work,\n\n    and more.\n    """'),
        ('    """Work."""\n', ""),
        ('"""What this is."""\n', ""),
        ("return late.run(", "\n    return late.run(\n        "),
    ],
)
def test_comments_docstrings_and_layout_are_not_code(
    tmp_path: Path, before: str, after: str
) -> None:
    changed = {"start.py": MODULES["start.py"].replace(before, after)}
    assert started(tmp_path / "one") == started(tmp_path / "two", changed)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("direct.LIMIT", "-direct.LIMIT"),
        ("{count!r", "{count!s"),
        ("{{x}}", "{{y}}"),
        ("    return", "    if count:\n        return"),
        ("def work", "async def work"),
    ],
)
def test_a_changed_token_is_another_code(tmp_path: Path, before: str, after: str) -> None:
    changed = {"start.py": MODULES["start.py"].replace(before, after)}
    assert started(tmp_path / "one") != started(tmp_path / "two", changed)


def test_a_string_that_is_no_docstring_is_code(tmp_path: Path) -> None:
    one = {"direct.py": 'LIMIT = 3\n"first"\n'}
    two = {"direct.py": 'LIMIT = 3\n"second"\n'}
    assert started(tmp_path / "one", one) != started(tmp_path / "two", two)


def test_the_digest_is_the_same_under_every_python(tmp_path: Path) -> None:
    golden = "2d84d717022558c3a6e05f9646df30565f2f4e37eeb99e8b583befa6c2ad3503"
    assert started(tmp_path) == golden


def test_the_order_in_which_modules_are_named_does_not_count() -> None:
    names = ["arflow_eval.store", "arflow_eval.panel.bundled"]
    assert provenance.code_digest(names) == provenance.code_digest(names[::-1])


def test_an_unknown_module_is_refused() -> None:
    with pytest.raises(Refusal, match=r"no module arflow_eval\.stor "):
        provenance.code_digest(["arflow_eval.stor"])


# --- environment ----------------------------------------------------------------------------


def test_the_environment_names_versions_and_threads() -> None:
    found = provenance.environment(threads=3)
    assert found["threads"] == 3
    assert found["versions"]["numpy"].count(".") == 2
    assert set(found["versions"]) >= {"torch", "transformers", "xarray", "zarr", "tokenizers"}


def test_the_environment_names_no_person_machine_or_path() -> None:
    text = provenance.canonical(provenance.environment()).decode()
    personal = {str(Path.home()), str(Path.cwd()), sys.prefix}
    assert not [word for word in personal if word in text]
    assert "/" not in text


def test_a_checkout_has_its_commit_and_whether_it_is_changed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    package = house(tmp_path)
    assert provenance.checkout(package) == {"commit": None, "dirty": None}
    git("init")
    assert provenance.checkout(package) == {"commit": None, "dirty": None}
    git("add", ".")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert provenance.checkout(package) == {"commit": commit, "dirty": False}
    (package / "up.py").write_text("UP = 10\n")
    assert provenance.checkout(package) == {"commit": commit, "dirty": True}


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.environment()["commit"] is None


def test_provenance_imports_no_model_stack() -> None:
    code = "import sys, arflow_eval.provenance; print({'torch', 'transformers'} & set(sys.modules))"
    source = str(provenance.PACKAGE.parent)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": source},
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.strip() == "set()"
