"""What is packed into the wheel works without the repository around it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_configurations_data_weights_and_types(unpacked: Path) -> None:
    package = unpacked / "arflow_eval"
    for source in (ROOT / "conf").rglob("*.yaml"):
        packed = package / "conf" / source.relative_to(ROOT / "conf")
        assert packed.read_bytes() == source.read_bytes()
    for name in ("pusht.npz", "pusht_full.json", "NOTICE.md"):
        assert (package / "panel" / "data" / name).is_file()
    for model in ("ar_tiny", "flow_tiny"):
        assert (package / "model" / "bundled" / model / "model.safetensors").is_file()
    assert (package / "py.typed").is_file()


def test_an_installed_package_finds_its_own_configurations(unpacked: Path, tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(unpacked)!r})
from arflow_eval import compose, evaluate
assert compose.conf_dir().is_absolute()
assert str(compose.conf_dir()).startswith({str(unpacked)!r}), compose.conf_dir()
sys.exit(evaluate.main(["model=hold_last", "panel=pusht_q4"]))
"""
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [path.name.split("-")[0] for path in (tmp_path / "outputs").iterdir()] == ["hold_last"]
