"""Augmentations of whole batches, against those of single images and of the configs."""
import mmpretrain.models  # noqa: F401
import numpy as np
import pytest
import torch
from mmpretrain.registry import BATCH_AUGMENTS
from torchvision.transforms import AutoAugment, AutoAugmentPolicy
from torchvision.transforms.functional import pil_to_tensor, to_pil_image

from locat_mmseg.analysis.batched_augment import (OPERATIONS, apply_policies, auto_augment,
                                                  crop_and_flip, cutmix)

WITHOUT_STRENGTH = ('AutoContrast', 'Equalize', 'Invert')


def pictures(count: int, height: int = 32, width: int = 27) -> torch.Tensor:
    """Noisy clouds (N, 3, H, W), each in a part of the grey levels."""
    torch.manual_seed(count)
    clouds = torch.nn.functional.interpolate(torch.rand(count, 3, 4, 4), (height, width),
                                             mode='bilinear')
    noise = torch.randint(9, (count, 3, height, width))
    return (clouds * 200 + torch.arange(count).view(-1, 1, 1, 1) % 40 + noise).byte()


@pytest.mark.parametrize('sign', [0, 1])
@pytest.mark.parametrize('name', OPERATIONS)
def test_operation_is_torchvisions(name, sign):
    """Of images as tensors, and as PIL images, which the configs use: to one grey level. Sheared
    and rotated pixels may come from a neighbour there, where two are equally near."""
    theirs = AutoAugment()
    images = pictures(4)
    for level in [None] if name in WITHOUT_STRENGTH else [0, 4, 9]:
        theirs.policies = [((name, 1., level), ('Invert', -1., None))]
        draw = 0, torch.zeros(2), torch.tensor([sign, 1])
        theirs.get_params = lambda _: draw
        ours = apply_policies(images, theirs.policies, torch.zeros(4, dtype=torch.long),
                              torch.zeros(4, 2), draw[2].expand(4, -1)).int()
        assert (ours - torch.stack([*map(theirs, images)]).int()).abs().max() <= 1
        pil = torch.stack([pil_to_tensor(theirs(to_pil_image(image))) for image in images])
        far = ((ours - pil.int()).abs() > 1).float().mean()
        assert far <= (0.15 if name[:5] in ('Shear', 'Rotat') else 0), level


@pytest.mark.parametrize('policy', ['cifar10', 'imagenet', 'svhn'])
def test_groups_change_nothing(policy):
    """A batch, in which images share operations, equals its images one by one."""
    policies = AutoAugment(AutoAugmentPolicy(policy)).policies
    images = pictures(100)
    chosen, probs = torch.arange(100) % 25, torch.rand(100, 2)
    signs = torch.randint(2, (100, 2))
    together = apply_policies(images, policies, chosen, probs, signs)
    alone = torch.cat([apply_policies(images[i:i + 1], policies, chosen[i:i + 1], probs[i:i + 1],
                                      signs[i:i + 1]) for i in range(100)])
    assert torch.equal(together, alone)
    assert torch.equal(images, pictures(100))  # the originals stay


@pytest.mark.parametrize('first, second', [(0.25, -1.), (-1., 0.6)])
def test_operations_are_applied_with_their_probability(first, second):
    images = torch.zeros(4000, 3, 4, 4, dtype=torch.uint8)
    torch.manual_seed(0)
    out = apply_policies(images, [(('Invert', first, None), ('Invert', second, None))],
                         torch.zeros(4000, dtype=torch.long), torch.rand(4000, 2),
                         torch.ones(4000, 2))
    assert abs((out == 255).float().mean() - max(first, second)) < 0.03


def test_auto_augment_draws_for_each_image():
    images = pictures(1).expand(60, -1, -1, -1)
    torch.manual_seed(0)
    out = auto_augment(images)
    assert out.shape == images.shape and out.dtype == torch.uint8
    assert len(out.flatten(1).unique(dim=0)) > 25


def test_crop_and_flip_reach_every_place_evenly():
    image = torch.arange(1, 13, dtype=torch.uint8).view(1, 1, 3, 4)
    torch.manual_seed(0)
    out = crop_and_flip(image.expand(9000, -1, -1, -1), padding=1)
    padded = torch.nn.functional.pad(image, [1] * 4)
    places = [padded[0, :, y:y + 3, x:x + 4] for y in range(3) for x in range(3)]
    wanted = torch.stack(places + [place.flip(-1) for place in places])
    counts = (out[:, None] == wanted).flatten(2).all(2).sum(0)
    assert counts.sum() == 9000 and 400 < counts.min() <= counts.max() < 600


@pytest.mark.parametrize('share, y, x', [(0.3, 4, 20), (0.81, 0, 0), (0.02, 31, 26), (0., 9, 9)])
def test_cutmix_is_that_of_the_configs_with_equal_draws(share, y, x, monkeypatch):
    images, targets = pictures(5).float(), torch.eye(5)
    order = torch.tensor([3, 1, 0, 4, 2])
    centre, same_centre = iter((y, x)), iter((torch.tensor(y), torch.tensor(x)))
    monkeypatch.setattr(np.random, 'beta', lambda *_: 1 - share)
    monkeypatch.setattr(np.random, 'randint', lambda *_, **__: next(centre))
    monkeypatch.setattr(torch, 'randperm', lambda *_, **__: order)
    theirs = BATCH_AUGMENTS.build(dict(type='CutMix', alpha=1.))(images.clone(), targets)
    monkeypatch.setattr(torch, 'rand', lambda *_: torch.tensor(share))
    monkeypatch.setattr(torch, 'randint', lambda *_: next(same_centre))
    for ours, wanted in zip(cutmix(images, targets), theirs):
        torch.testing.assert_close(ours, wanted)
    assert (theirs[0] != images).any() == (share > 0)


def test_cutmix_leaves_its_arguments():
    images, targets = pictures(5), torch.eye(5)
    torch.manual_seed(0)
    assert not torch.equal(cutmix(images, targets)[0], images)
    assert torch.equal(images, pictures(5)) and torch.equal(targets, torch.eye(5))
