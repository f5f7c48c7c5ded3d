"""What a user gets from ``pip install``: the modules, and configs and tools in ``.mim``."""
import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ('setup.py', 'pyproject.toml', 'MANIFEST.in', 'LICENSE', 'README.md', 'Makefile',
           'model-index.yml', 'locat_mmseg', 'configs', 'tools')
REQUIREMENTS = {'torch', 'torchvision', 'timm', 'onedl-mmengine', 'onedl-mmcv',
                'onedl-mmsegmentation', 'onedl-mmpretrain'}


def files_below(folder: Path) -> set[str]:
    """Paths of the files in a folder of the repository, without caches and hidden ones."""
    paths = (path.relative_to(ROOT) for path in folder.rglob('*') if path.is_file())
    return {path.as_posix() for path in paths
            if not any(part.startswith(('.', '__pycache__')) for part in path.parts)}


def in_mim(names: set[str]) -> set[str]:
    return {f'locat_mmseg/.mim/{name}' for name in names}


CONFIGS, TOOLS = files_below(ROOT / 'configs'), files_below(ROOT / 'tools')
MIM_FILES = in_mim(CONFIGS | TOOLS | {'model-index.yml'})


def build(hook: str, tree: Path, out: Path, before: str = '') -> Path:
    """Call a PEP 517 hook of setuptools on ``tree`` without isolation; return what it built."""
    code = f'{before}\nfrom setuptools import build_meta\nprint(build_meta.{hook}({str(out)!r}))'
    done = subprocess.run([sys.executable, '-c', code], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return out / done.stdout.split()[-1]


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources: builds write into their tree."""
    tree = tmp_path / 'tree'
    tree.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name,
                            ignore=shutil.ignore_patterns('__pycache__', '.mim'))
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


def test_wheel_holds_modules_configs_and_tools(tree, tmp_path):
    wheel = build('build_wheel', tree, tmp_path)
    names = names_in(wheel)
    modules = files_below(ROOT / 'locat_mmseg')
    assert CONFIGS and TOOLS and modules
    outside = {name for name in names if '.dist-info/' not in name}
    assert outside == modules | MIM_FILES


def test_wheel_names_seven_requirements(tree, tmp_path):
    wheel = build('build_wheel', tree, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith('/METADATA'))
        metadata = email.message_from_bytes(archive.read(name))
    required = [line for line in metadata.get_all('Requires-Dist') if 'extra ==' not in line]
    assert {line.split('>=')[0] for line in required} == REQUIREMENTS
    assert len(required) == len(REQUIREMENTS)
    assert f"__version__ = '{metadata['Version']}'" in (
        ROOT / 'locat_mmseg' / '__init__.py').read_text()


def test_sdist_holds_mim_and_builds_the_same_wheel(tree, tmp_path):
    from_tree = names_in(build('build_wheel', tree, tmp_path))
    sdist = build('build_sdist', tree, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    unpacked = next((tmp_path / 'unpacked').iterdir())
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob('*')}
    assert CONFIGS | TOOLS | MIM_FILES <= names
    (tmp_path / 'again').mkdir()
    assert names_in(build('build_wheel', unpacked, tmp_path / 'again')) == from_tree


def test_wheel_forgets_a_config_that_was_deleted(tree, tmp_path):
    stale = tree / 'configs' / 'stale.py'
    stale.write_text('')
    assert in_mim({'configs/stale.py'}) <= names_in(build('build_wheel', tree, tmp_path))
    stale.unlink()
    assert not in_mim({'configs/stale.py'}) & names_in(build('build_wheel', tree, tmp_path))


def test_editable_install_links_to_the_originals(tree, tmp_path):
    build('build_editable', tree, tmp_path)
    mim = tree / 'locat_mmseg' / '.mim'
    (tree / 'configs' / 'new.py').write_text('x = 1')
    assert (mim / 'configs' / 'new.py').read_text() == 'x = 1'
    assert (mim / 'tools').resolve() == tree / 'tools'
    assert (mim / 'model-index.yml').read_text() == (ROOT / 'model-index.yml').read_text()
    assert not os.path.isabs(os.readlink(mim / 'configs'))
    wheel = names_in(build('build_wheel', tree, tmp_path))
    assert MIM_FILES <= wheel  # a wheel built afterwards follows no links


def test_editable_install_copies_where_links_are_forbidden(tree, tmp_path):
    forbid = ('import os\ndef symlink(*a, **k): raise OSError("no right to link")\n'
              'os.symlink = symlink')
    build('build_editable', tree, tmp_path, before=forbid)
    mim = tree / 'locat_mmseg' / '.mim'
    assert not (mim / 'configs').is_symlink()
    assert {path.relative_to(tree).as_posix() for path in mim.rglob('*') if path.is_file()} \
        == MIM_FILES


@pytest.mark.parametrize('hook', ['build_wheel', 'build_editable', 'build_sdist'])
def test_missing_configs_stop_the_build(tree, tmp_path, hook):
    shutil.rmtree(tree / 'configs')
    with pytest.raises(RuntimeError, match='configs is missing: build from the whole repo'):
        build(hook, tree, tmp_path)


@pytest.mark.slow
def test_installed_wheel_works_from_another_folder(tree, tmp_path):
    wheel = build('build_wheel', tree, tmp_path)
    environment = tmp_path / 'environment'
    venv.create(environment, symlinks=True)
    python = environment / 'bin' / 'python'
    site = subprocess.run([python, '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'],
                          capture_output=True, text=True, check=True).stdout.strip()
    # The dependencies come from the running environment, but not its editable installs: Python
    # does not read .pth files of a folder that itself came from a .pth file.
    Path(site, 'dependencies.pth').write_text(sysconfig.get_path('purelib'))
    subprocess.run([sys.executable, '-m', 'pip', '--python', python, 'install', '--no-deps',
                    '--no-index', wheel], check=True)
    code = ('import locat_mmseg; from mmengine.utils import get_installed_path;'
            'from mmengine.registry import MODELS;'
            'assert "LocAtViT" in MODELS;'
            'print(get_installed_path("locat_mmseg"))')
    clean = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    done = subprocess.run([python, '-c', code], cwd=tmp_path, env=clean, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    installed = Path(done.stdout.split()[-1])
    assert installed == Path(site, 'locat_mmseg')
    assert all((installed.parent / name).is_file() for name in MIM_FILES)
