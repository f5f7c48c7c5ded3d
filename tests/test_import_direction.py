"""Who may import whom: the folders form one direction, and OpenMMLab stays in one of them."""
import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = 'locat_mmseg'
OPENMMLAB = {'mmengine', 'mmcv', 'mmseg', 'mmpretrain', 'mmdet'}
# What each folder may import of the package, and of the libraries that are not free for all.
ARROWS = {
    '': {'openmmlab'},
    'layers': set(),
    'metrics': {'layers'},
    'addon': {'layers', 'timm'},
    'analysis': {'layers', 'metrics', 'addon', 'timm'},
    'openmmlab': {'layers', 'metrics', 'addon', 'analysis', 'timm', *OPENMMLAB},
    'tools': {'openmmlab', 'analysis', *OPENMMLAB - {'mmcv', 'mmdet'}},
}
# Folders of mathematics: no library but torch.
TORCH_ONLY = {'layers', 'metrics'}
GUARDED = {*ARROWS, 'timm', *OPENMMLAB} - {'', 'tools'}


def imported_names(source: str, module: str) -> Iterator[str]:
    """Absolute dotted name of each import of a module's source, also those within functions.

    Args:
        source: text of the module.
        module: its dotted name; a package's ends in ``.__init__``.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split('.')[:-node.level] if node.level else []
            base += node.module.split('.') if node.module else []
            yield from ('.'.join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = getattr(node.func, 'attr', getattr(node.func, 'id', None))
            text = node.args[0] if node.args else None
            if name in ('import_module', '__import__') and isinstance(text, ast.Constant):
                yield text.value


def wrong_imports(source: str, module: str) -> list[str]:
    """The imports that the folder of ``module`` must not make."""
    folder = folder_of(module)
    wrong = []
    for name in imported_names(source, module):
        first = name.partition('.')[0]
        target = folder_of(name) if first == PACKAGE else first
        if name.startswith('mmcv.ops') or (target in GUARDED and target != folder
                                           and target not in ARROWS[folder]):
            wrong.append(name)
        elif folder in TORCH_ONLY and first not in {PACKAGE, 'torch', *sys.stdlib_module_names}:
            wrong.append(name)
        elif target == '' and folder in ARROWS['openmmlab']:
            wrong.append(name)  # the package itself imports openmmlab
    return wrong


def folder_of(module: str) -> str:
    """'layers' of ``locat_mmseg.layers.prr``; '' of the package itself; 'tools' of ``tools.x``."""
    parts = module.split('.')
    if parts[0] != PACKAGE:
        return parts[0]
    return parts[1] if len(parts) > 1 and parts[1] in ARROWS else ''


def modules() -> dict[str, Path]:
    """Dotted names and files of the package and the tools."""
    paths = [*ROOT.glob(f'{PACKAGE}/**/*.py'), *ROOT.glob('tools/**/*.py')]
    return {'.'.join(path.relative_to(ROOT).with_suffix('').parts): path
            for path in paths if '.mim' not in path.parts}


@pytest.mark.parametrize('module', modules())
def test_imports_follow_the_arrows(module):
    assert wrong_imports(modules()[module].read_text(), module) == []


def test_every_folder_is_known():
    folders = {path.parent.name for path in ROOT.glob(f'{PACKAGE}/*/__init__.py')}
    assert folders <= set(ARROWS)
    assert {'layers', 'addon', 'openmmlab'} <= folders
    assert {folder_of(module) for module in modules()} == {'', 'tools', *folders}


@pytest.mark.parametrize('module, source', [
    ('locat_mmseg.layers.prr', 'import timm'),
    ('locat_mmseg.layers.prr', 'import numpy as np'),
    ('locat_mmseg.layers.prr', 'from ..addon import add_gaug'),
    ('locat_mmseg.layers.__init__', 'from ..addon.grid import TokenGrid'),
    ('locat_mmseg.layers.prr', 'from .. import addon'),
    ('locat_mmseg.layers.prr', 'from .. import __version__'),
    ('locat_mmseg.layers.prr', 'import locat_mmseg.openmmlab'),
    ('locat_mmseg.layers.prr', 'def f():\n    from mmengine.registry import MODELS'),
    ('locat_mmseg.metrics.entropy', 'from timm.layers import Attention'),
    ('locat_mmseg.addon.convert', 'from mmengine import MODELS'),
    ('locat_mmseg.addon.convert', 'import mmcv'),
    ('locat_mmseg.addon.convert', 'from ..analysis.capture import capture'),
    ('locat_mmseg.addon.convert', "import importlib\nimportlib.import_module('mmseg.registry')"),
    ('locat_mmseg.analysis.plots', 'from mmseg.apis import init_model'),
    ('locat_mmseg.analysis.plots', 'from locat_mmseg.openmmlab import LocAtViT'),
    ('locat_mmseg.openmmlab.hooks', 'from mmcv.ops import point_sample'),
    ('locat_mmseg.openmmlab.hooks', 'import mmcv.ops'),
    ('locat_mmseg.openmmlab.datasets.shapes', 'from mmcv import ops'),
    ('locat_mmseg.__init__', 'from . import layers'),
    ('tools.train', 'from locat_mmseg.layers import attend'),
    ('tools.train', 'import timm'),
])
def test_a_wrong_arrow_is_seen(module, source):
    assert len(wrong_imports(source, module)) == 1


@pytest.mark.parametrize('module, source', [
    ('locat_mmseg.layers.attention', 'import math\nimport torch\nfrom .gaussian import Grid'),
    ('locat_mmseg.metrics.entropy', 'from torch import Tensor\nfrom ..layers import attend'),
    ('locat_mmseg.addon.convert', 'import timm\nimport numpy\nfrom ..layers.gaussian import Grid'),
    ('locat_mmseg.analysis.plots', 'import matplotlib\nfrom ..addon import add_gaug'),
    ('locat_mmseg.openmmlab.datasets.shapes', 'import mmseg\nfrom ..errors import warn'),
    ('locat_mmseg.openmmlab.datasets.shapes', 'from ...layers import refine'),
    ('locat_mmseg.__init__', 'from . import openmmlab'),
    ('tools.train', 'import mmengine\nfrom locat_mmseg.openmmlab.launch import main'),
])
def test_a_right_arrow_passes(module, source):
    assert wrong_imports(source, module) == []


@pytest.mark.parametrize('parts, missing', [
    (['layers', 'metrics'], {'timm', *OPENMMLAB}),
    (['layers', 'metrics', 'addon', 'analysis'], OPENMMLAB),
    (['openmmlab'], OPENMMLAB - {'mmengine'}),
], ids=['torch alone', 'timm alone', 'mmengine alone'])
def test_imports_where_packages_are_missing(parts, missing):
    """`None` in sys.modules makes Python treat a package as not installed."""
    parts = [part for part in parts if (ROOT / PACKAGE / part).is_dir()]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(missing)!r}))
import {PACKAGE}
import {', '.join(f'{PACKAGE}.{part}' for part in parts)}
print(sorted(name for name in {sorted(OPENMMLAB | {'timm'})!r} if sys.modules.get(name)))
"""
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not missing & set(ast.literal_eval(done.stdout.splitlines()[-1]))
