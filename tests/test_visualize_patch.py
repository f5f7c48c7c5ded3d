"""tools/visualize_patch.py as a user runs it."""
import cv2
import numpy as np
import pytest
import torch
from tiny_runs import load_tool, mistake, run

from locat_mmseg.openmmlab.backbones import LocAtViT

VISUALIZE = load_tool('visualize_patch')
pytestmark = [pytest.mark.usefixtures('clean_process'),
              pytest.mark.filterwarnings('ignore:neither a checkpoint')]
LOCAT = """
model['backbone'] = dict(type='LocAtViT', img_size=32, patch_size=8, gaug={},
    arch=dict(embed_dims=24, num_layers={}, num_heads=3, mlp_ratio=2))
"""


@pytest.fixture
def image(tmp_path):
    path = tmp_path / 'street.png'
    cv2.imwrite(str(path), np.random.default_rng(0).integers(256, size=(50, 70, 3), dtype=np.uint8))
    return path


def test_locat_beside_plain(segmentation_config, image, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(VISUALIZE, 'save_patch_picture', lambda path, *args: drawn.update(
        {path.name: args}))
    locat, plain = (segmentation_config(LOCAT.format(gaug, 2)) for gaug in (True, False))
    run(VISUALIZE.main, locat, '--image', image, '--beside', plain, '--img-size', 32, 48,
        '--patch', 3, 1)
    assert set(drawn) == {'attention.png', 'similarity.png'}
    for name, heads in (('attention.png', 3), ('similarity.png', 4)):
        shown, patch, maps, columns, _, limits = drawn[name]
        assert shown.shape == (32, 48, 3) and patch == (3, 1)
        assert [key.rpartition('/')[2] for key in maps] == [locat.stem, plain.stem]
        assert all(layer.shape == (heads, 4, 6) for layers in maps.values() for layer in layers)
        assert len(columns) == heads and (limits is None) == (heads == 3)
    with_it, without = drawn['attention.png'][2].values()
    assert (with_it[0][:, 3, 1] > without[0][:, 3, 1]).all()  # drawn to itself by the Gaussian
    expected = cv2.resize(cv2.imread(str(image))[..., ::-1], (48, 32))
    np.testing.assert_array_equal(drawn['similarity.png'][0], expected)


def test_two_checkpoints_of_one_config(segmentation_config, image, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(VISUALIZE, 'save_patch_picture', lambda path, *args: drawn.update(
        {path.name: args[2]}))
    config = segmentation_config(LOCAT.format(True, 1))
    torch.manual_seed(0)
    for name in ('a.pth', 'b.pth'):
        backbone = LocAtViT(dict(embed_dims=24, num_layers=1, num_heads=3, mlp_ratio=2),
                            img_size=32, patch_size=8)
        torch.save(backbone.state_dict(), tmp_path / name)
    run(VISUALIZE.main, config, 'a.pth', '--image', image, '--beside', config, 'b.pth',
        '--img-size', 32)
    (left, a), (right, b) = drawn['attention.png'].items()
    assert left.endswith('a.pth, left') and right.endswith('b.pth, right')
    assert not torch.equal(a[0], b[0])


def test_picture_files_of_a_timm_model(segmentation_config, image, tmp_path):
    run(VISUALIZE.main, segmentation_config(), '--timm', 'vit_tiny_patch16_224', '--weights',
        'random', '--image', image, '--img-size', 48, '--maps', 'similarity', '--out-dir', 'out')
    assert [path.name for path in (tmp_path / 'out').iterdir()] == ['similarity.png']
    assert cv2.imread(str(tmp_path / 'out/similarity.png')).std() > 0


@pytest.mark.parametrize('argv, reason', [
    (['--patch', '4', '0'], 'patch (4, 0) lies outside of the 4 x 4 patches'),
    (['--out-dir', __file__], 'is a file: name another folder'),
    (['--image', 'gone.png'], 'gone.png does not exist or is no image'),
    (['--image', __file__], 'does not exist or is no image'),
    (['--timm', 'resnet10t', '--weights', 'random', '--maps', 'attention'],
     'ResNet holds no timm model with a patch embedding'),
    (['--timm', 'swin_tiny_patch4_window7_224', '--weights', 'random', '--maps', 'similarity',
      '--img-size', '224'], 'SwinTransformer is a pyramid'),
])
def test_mistakes(segmentation_config, image, argv, reason):
    config = segmentation_config(LOCAT.format(True, 1))
    given = argv if '--image' in argv else ['--image', image, *argv]
    assert reason in mistake(VISUALIZE.main, config, '--img-size', 32, *given)


def test_models_of_other_depth(segmentation_config, image):
    one, two = (segmentation_config(LOCAT.format(True, depth)) for depth in (1, 2))
    assert 'the models have other layers, heads or patches' in mistake(
        VISUALIZE.main, one, '--image', image, '--beside', two, '--img-size', 32)


def test_a_backbone_that_is_not_ours(segmentation_config, image):
    assert 'pictures take a backbone of this package, or --timm NAME' in mistake(
        VISUALIZE.main, segmentation_config(), '--image', image)
