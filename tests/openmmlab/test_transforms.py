"""AutoAugment by name, against torchvision's own."""
import mmpretrain.datasets  # noqa: F401
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmpretrain.registry import TRANSFORMS
from PIL import Image
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

from locat_mmseg.openmmlab.transforms import CIFARAutoAugment


def photo(height: int, width: int) -> np.ndarray:
    """Smooth colours, so that every operation shows."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    return (255 * np.stack([y, x * x, 1 - 0.8 * x], -1)).astype(np.uint8)


@pytest.mark.parametrize('policy', ['cifar10', 'imagenet', 'svhn'])
def test_equals_torchvision_with_equal_seeds(policy):
    ours, theirs = CIFARAutoAugment(policy), AutoAugment(AutoAugmentPolicy(policy))
    changed = 0
    for seed in range(60):
        image = photo(32 + seed % 3, 27)
        torch.manual_seed(seed)
        result = ours(dict(img=image.copy(), gt_label=3))
        torch.manual_seed(seed)
        assert np.array_equal(result['img'], np.asarray(theirs(Image.fromarray(image))))
        assert result['img'].dtype == np.uint8 and result['gt_label'] == 3
        changed += not np.array_equal(result['img'], image)
    assert changed > 30


def test_cifar_policy_by_default():
    assert CIFARAutoAugment().augment.policies == AutoAugment(AutoAugmentPolicy.CIFAR10).policies


def test_order_of_channels_matters():
    """Saturation and equalisation weigh red, green and blue differently: images must be RGB."""
    image = photo(32, 32)
    differing = 0
    for seed in range(60):
        torch.manual_seed(seed)
        rgb = CIFARAutoAugment()(dict(img=image))['img']
        torch.manual_seed(seed)
        bgr = CIFARAutoAugment()(dict(img=image[..., ::-1].copy()))['img'][..., ::-1]
        differing += not np.array_equal(rgb, bgr)
    assert differing > 5


def test_survives_dumping_the_config(tmp_path):
    cfg = Config(dict(pipeline=[dict(type='CIFARAutoAugment', policy='svhn')]))
    cfg.dump(tmp_path / 'dumped.py')
    step, = Config.fromfile(tmp_path / 'dumped.py').pipeline
    with DefaultScope.overwrite_default_scope('mmpretrain'):  # whatever ran before
        assert repr(TRANSFORMS.build(step)) == "CIFARAutoAugment(policy='svhn')"


def test_unknown_policy():
    with pytest.raises(ValueError, match=r"'cifar100': expected one of \['imagenet', 'cifar10', "):
        CIFARAutoAugment('cifar100')


@pytest.mark.parametrize('image', [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4), np.uint8)])
def test_other_images(image):
    with pytest.raises(ValueError, match=r'takes uint8 images \(H, W, 3\), got .*normalise after'):
        CIFARAutoAugment()(dict(img=image))
