"""Packaging of locat-mmseg.

OpenMMLab's tools look for the configs and scripts of an installed project in ``<package>/.mim``.
The repository keeps one copy of them, at its root; each way to install puts them where they are
looked for: a wheel or an sdist takes a copy, an editable install links to the originals.
"""
import os
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
PACKAGE = 'locat_mmseg'
MIM_CONTENT = ('configs', 'tools', 'model-index.yml')


def read_version() -> str:
    """The version, read from the package without importing it: torch may not be there yet."""
    text = (ROOT / PACKAGE / '__init__.py').read_text(encoding='utf-8')
    return re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE).group(1)


def copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder without caches and hidden files."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns('__pycache__', '.*'))
    else:
        shutil.copy2(source, target)


def link(source: Path, target: Path) -> None:
    """Link relatively, so that the tree can be moved; copy where the system forbids links."""
    try:
        target.symlink_to(os.path.relpath(source, target.parent), source.is_dir())
    except OSError:  # Windows without the right to create symbolic links
        print(f'No symbolic links here: {target} is a copy; install again after changing {source}')
        copy(source, target)


def fill_mim(package_dir: Path, place=copy) -> None:
    """Make ``package_dir/.mim`` anew and put configs, tools and the model index into it."""
    mim = package_dir / '.mim'
    shutil.rmtree(mim, ignore_errors=True)
    mim.mkdir(parents=True)
    for name in MIM_CONTENT:
        if not (ROOT / name).exists():
            raise FileNotFoundError(f'{ROOT / name} is missing: build from the whole repository')
        place(ROOT / name, mim / name)


class BuildWithMim(build_py):
    """Wheels: ``.mim`` beside the modules. Editable builds leave it to :class:`EditableWithMim`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            fill_mim(Path(self.build_lib) / PACKAGE)


class EditableWithMim(editable_wheel):
    """``pip install -e``: ``.mim`` in the source tree (ignored by git)."""

    def run(self) -> None:
        super().run()
        fill_mim(ROOT / PACKAGE, place=link)


class SdistWithMim(sdist):
    """Source archives: ``.mim`` beside the modules; the originals travel too, for later builds."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        fill_mim(Path(base_dir) / PACKAGE)


setup(
    name='locat-mmseg',
    version=read_version(),
    description='LocAt vision transformers (Gaussian-augmented attention, patch representation '
    'refinement) for OpenMMLab segmentation and classification',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author='locat-mmseg authors',
    license='Apache-2.0',
    license_files=['LICENSE'],
    packages=find_packages(include=[PACKAGE, f'{PACKAGE}.*']),
    include_package_data=True,
    python_requires='>=3.10',
    install_requires=[
        'torch>=2.6',
        'torchvision',
        'timm>=1.0.31',
        'onedl-mmengine>=0.10.12',
        'onedl-mmcv>=2.3.6',
        'onedl-mmsegmentation>=1.4.2',
        'onedl-mmpretrain>=1.3.6',
    ],
    extras_require={
        'faiss': ['faiss-cpu'],  # faster nearest neighbours; exact without it, too
        # setuptools: the packaging tests build wheels, and Python 3.12+ environments come without.
        'test': ['faiss-cpu', 'pytest', 'pytest-xdist', 'scikit-learn', 'setuptools>=77'],
    },
    cmdclass={
        'build_py': BuildWithMim,
        'editable_wheel': EditableWithMim,
        'sdist': SdistWithMim,
    },
    zip_safe=False,
)
