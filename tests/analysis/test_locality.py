"""Locality of whole models: against loops over the captured weights, in every family."""
import copy
import json
import math

import pytest
import torch
from tiny_timm import gaussians, strengthen, tiny, tiny_swin, tiny_vit
from torch import Tensor, nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis import (LayerAttention, LocalityMeter, capture_attention,
                                  evaluation_mode, measure_locality, receptive_areas)


def tiny_rope(**kwargs) -> nn.Module:
    return tiny('vit_medium_patch16_rope_reg1_gap_256', **kwargs)


def shifted_swin() -> nn.Module:
    """Windows of 4 x 4 on maps of 6 x 11 and 3 x 6: shifted and padded."""
    model = tiny_swin(window_size=4, always_partition=True)
    model.set_input_size((24, 44), window_size=4)
    return model


FAMILIES = {  # model, image (height, width), class tokens, registers
    'vit': (tiny_vit, (48, 80), 1, 0),
    'registers': (lambda: tiny('vit_small_patch14_reg4_dinov2', img_size=56), (56, 56), 1, 4),
    'rope': (tiny_rope, (64, 64), 0, 1),
    'eva': (lambda: tiny('vit_small_patch16_dinov3', dynamic_img_size=True), (48, 64), 1, 4),
    'swin': (shifted_swin, (24, 44), 0, 0),
}


def slow_measures(layer: LayerAttention, image: int, head: int) -> dict[str, float]:
    """Distance, entropy and share of one head on one image, query by query and key by key."""
    width = layer.grid[1]
    windows = 1 if layer.allowed is None else len(layer.allowed)
    values = []
    for window in range(windows):
        weights = layer.weights[image * windows + window, head].double()
        patches = weights[layer.num_prefix_tokens:, layer.num_prefix_tokens:]
        for query, row in enumerate(patches.tolist()):
            keys = [key for key in range(len(row))
                    if layer.allowed is None or layer.allowed[window, query, key]]
            if keys:
                mass = sum(row[key] for key in keys)
                distance = sum(row[key] / mass * math.hypot(
                    query // width - key // width, query % width - key % width) for key in keys)
                entropy = -sum(row[key] / mass * math.log(row[key] / mass) for key in keys
                               if row[key]) / math.log(len(keys))
                values.append((distance, entropy, 1 - sum(row)))
    distance, entropy, share = (sum(column) / len(values) for column in zip(*values))
    return {'distance_patches': distance, 'entropy': entropy, 'share': share}


@pytest.mark.parametrize('gaug', [False, True], ids=['plain', 'gaug'])
@pytest.mark.parametrize('family', FAMILIES)
def test_equals_a_loop(family, gaug):
    make, size, num_class_tokens, num_registers = FAMILIES[family]
    torch.manual_seed(1)
    model = strengthen(add_gaug(make())) if gaug else make()
    for name, parameter in model.named_parameters():
        if 'qkv' in name or 'relative' in name:
            nn.init.normal_(parameter, std=0.3)  # attention far from uniform
    images = torch.randn(3, 3, *size)
    actual = measure_locality(model, [images[:2], images[2:]])
    with torch.no_grad(), evaluation_mode(model), capture_attention(model) as captured:
        model(images)
    assert actual.num_images == 3
    assert [layer.name for layer in actual.layers] == [layer.name for layer in captured]
    for layer, found in zip(captured, actual.layers):
        assert found.grids == [layer.grid] and found.windowed == (family == 'swin')
        diagonal = math.hypot(layer.grid[0] - 1, layer.grid[1] - 1)
        for head in range(layer.weights.shape[1]):
            expected = {name: sum(slow_measures(layer, image, head)[name] for image in range(3)) / 3
                        for name in ('distance_patches', 'entropy', 'share')}
            distance = expected['distance_patches']
            assert found.distance_patches[head] == pytest.approx(distance, abs=1e-5)
            assert found.distance_diagonal[head] == pytest.approx(distance / diagonal, abs=1e-5)
            assert found.distance_pixels[head] == pytest.approx(
                distance * layer.stride[0], abs=1e-4)
            assert found.entropy[head] == pytest.approx(expected['entropy'], abs=1e-5)
            shares = [share[head] for share in (found.class_share, found.register_share) if share]
            assert sum(shares) == pytest.approx(expected['share'], abs=1e-5)
        assert (found.class_share is not None) == (num_class_tokens > 0)
        assert (found.register_share is not None) == (num_registers > 0)
        assert (found.gaussian_alpha is not None) == gaug
    assert (actual.class_alignment is None) == (num_class_tokens == 0)


def test_class_and_register_shares_typed_by_hand():
    """The attention of every query is proportional to 4 (class token), 2, 2 (registers), 1, ..."""
    model = tiny('vit_small_patch14_reg4_dinov2', img_size=56, reg_tokens=2, depth=1)
    biases = torch.tensor([4., 2, 2] + [1.] * 16).log()
    model.blocks[0].attn = WithBias(model.blocks[0].attn, biases)
    layer, = measure_locality(model, [torch.randn(1, 3, 56, 56)]).layers
    assert layer.class_share == pytest.approx([4 / 24] * 3)
    assert layer.register_share == pytest.approx([4 / 24] * 3)
    assert layer.entropy == pytest.approx([1.] * 3)


def WithBias(attn: nn.Module, biases: Tensor) -> nn.Module:
    """The layer with all logits 0 but for a bias per key."""
    nn.init.zeros_(attn.qkv.weight)
    nn.init.zeros_(attn.qkv.bias)
    attn.register_forward_pre_hook(
        lambda layer, args, kwargs: (args, {**kwargs, 'attn_mask': biases.expand(1, 1, 19, 19)}),
        with_kwargs=True)
    return attn


def test_class_alignment_by_depth():
    model = tiny_vit().eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = []
        for patches, prefix in model.forward_intermediates(
                images, intermediates_only=True, return_prefix_tokens=True, output_fmt='NLC'):
            expected.append(torch.cosine_similarity(patches, prefix, dim=-1).mean().item())
    actual = measure_locality(model, images.split(1)).class_alignment
    assert actual == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('make, size', [(tiny_vit, (64, 64)), (shifted_swin, (24, 44))])
def test_gaussian_of_known_width_and_strength(make, size):
    """Zero weights: variance 1 patch^2 and eps 0.1, strength ln 2, the same for every query."""
    model = add_gaug(make())
    for gaug in gaussians(model):
        for linear in (gaug.log_var, gaug.log_alpha):
            nn.init.zeros_(linear.weight)
    for layer in measure_locality(model, [torch.randn(1, 3, *size)]).layers:
        heads = len(layer.entropy)
        for sigma in (layer.gaussian_sigma_rows, layer.gaussian_sigma_cols):
            assert sigma == pytest.approx([math.sqrt(1.1)] * heads)
        assert layer.gaussian_alpha == pytest.approx([math.log(2)] * heads)
        if not layer.windowed:
            assert layer.gaussian_distance_diagonal == pytest.approx(
                [gaussian_distance(layer.grids[0], 1.1) / math.hypot(3, 3)] * heads)


def gaussian_distance(grid: tuple[int, int], variance: float) -> float:
    """Mean distance in patches under a Gaussian, over all queries of a grid."""
    places = [(row, col) for row in range(grid[0]) for col in range(grid[1])]
    total = 0
    for query in places:
        distances = [math.dist(query, key) for key in places]
        weights = [math.exp(-0.5 * distance ** 2 / variance) for distance in distances]
        total += sum(map(math.prod, zip(weights, distances))) / sum(weights) / len(places)
    return total


def test_sizes_may_differ_and_every_image_counts_alike():
    model = tiny_vit()
    small, large = torch.randn(1, 3, 32, 48), torch.randn(1, 3, 64, 80)
    both, *single = (measure_locality(model, batches)
                     for batches in ([small, large], [small], [large]))
    for layer, first, second in zip(both.layers, *(one.layers for one in single)):
        assert layer.grids == [(2, 3), (4, 5)]
        for name in ('distance_diagonal', 'entropy', 'class_share'):
            mean = [(a + b) / 2 for a, b in zip(getattr(first, name), getattr(second, name))]
            assert getattr(layer, name) == pytest.approx(mean, abs=1e-6)


def test_no_weights_stay_in_memory():
    model = tiny_vit()
    meter = LocalityMeter(model)
    with torch.no_grad(), meter:
        model(torch.randn(2, 3, 64, 64))
        before = count_numbers(meter)
        for _ in range(3):
            model(torch.randn(2, 3, 64, 64))
    assert count_numbers(meter) == before < 200


def count_numbers(value: object) -> int:
    """How many numbers the tensors hold that an object keeps, but for its model's."""
    if isinstance(value, Tensor):
        return value.numel()
    if isinstance(value, nn.Module) or isinstance(value, (str, int, float)) or value is None:
        return 0
    items = value.values() if isinstance(value, dict) else value \
        if isinstance(value, (list, tuple, set)) else vars(value).values() \
        if hasattr(value, '__dict__') else ()
    return sum(map(count_numbers, items))


def test_mode_and_weights_stay():
    model = tiny_vit(drop_path_rate=0.5).train()
    model.blocks[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    weights = copy.deepcopy(model.state_dict())
    images = [torch.randn(1, 3, 64, 64)]
    first, second = (measure_locality(model, images, field_images=1) for _ in range(2))
    assert first == second  # nothing random
    assert {name: module.training for name, module in model.named_modules()} == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_a_diverged_model_gives_null():
    model = tiny_vit()
    images = torch.randn(2, 3, 64, 64)
    images[1, 0, 0, 0] = torch.nan
    result = measure_locality(model, images.split(1)).to_dict()
    assert result['layers'][0]['distance_diagonal'] == [None] * 3
    assert result['class_alignment'] == [None, None]
    assert result['min_distance_diagonal'] is None
    json.dumps(result, allow_nan=False)


def test_minimum_and_json():
    result = measure_locality(tiny_vit(), [torch.randn(1, 3, 64, 64)])
    assert result.min_distance_diagonal == min(
        min(layer.distance_diagonal) for layer in result.layers)
    read = json.loads(json.dumps(result.to_dict()))
    assert read['min_distance_diagonal'] == result.min_distance_diagonal
    assert read['layers'][1]['entropy'] == result.layers[1].entropy
    result.layers[1].distance_diagonal[2] = math.nan
    assert math.isnan(result.min_distance_diagonal)


def test_no_image_is_refused():
    with pytest.raises(ValueError, match='no image went through the model'):
        measure_locality(tiny_vit(), [])


def test_a_single_patch_is_refused():
    with pytest.raises(ValueError, match='one patch has no distances'):
        measure_locality(tiny_vit(), [torch.randn(1, 3, 16, 16)])


@pytest.mark.parametrize('family', FAMILIES)
def test_receptive_areas_by_depth(family):
    make, size, *_ = FAMILIES[family]
    model = make().eval()
    areas = receptive_areas(model, torch.randn(2, 3, *size))
    assert areas.shape == (2, 2)
    assert ((areas > 0) & (areas <= 0.5)).all()


def test_receptive_area_of_patches_that_see_only_themselves():
    """Without attention the central feature comes from its own 16 x 16 patch of 64 x 64 pixels."""
    model = tiny_vit().eval()
    for block in model.blocks:
        nn.init.zeros_(block.attn.proj.weight)
    images = torch.randn(3, 3, 64, 64)
    areas = receptive_areas(model, images, mass=0.999)
    assert ((areas > 0.05) & (areas <= 1 / 16)).all()
    result = measure_locality(model, images.split(2), field_images=2)
    torch.testing.assert_close(torch.tensor(result.receptive_area),
                               receptive_areas(model, images[:2]).mean(0).float())
