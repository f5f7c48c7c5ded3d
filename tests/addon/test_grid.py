"""The token grid: sizes and shapes of images, gradient checkpointing, torch.compile."""
import pytest
import timm
import torch
from golden import relative_error
from tiny_timm import parameter_gradients, strengthen, tiny, tiny_jumbo, tiny_swin, tiny_vit
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from locat_mmseg.addon import TokenGrid, add_gaug

# Patches of 16 pixels: 4 x 6 and 6 x 4 of them, as many in another shape.
WIDE, TALL = (64, 96), (96, 64)
FAMILIES = {
    'vit': lambda: tiny_vit(),
    'regvit': lambda: tiny_vit(reg_tokens=4),
    'stem': lambda: tiny('vit_tiny_r_s16_p8_224', dynamic_img_size=True),
    'eva02': lambda: tiny('eva02_tiny_patch14_224', patch_size=16, dynamic_img_size=True),
    'rope mixed': lambda: tiny('vit_small_patch16_rope_mixed_224', dynamic_img_size=True),
    'dinov3': lambda: tiny('vit_small_patch16_dinov3', dynamic_img_size=True),
    'jumbo': lambda: tiny_jumbo(),
    'swin': lambda: tiny_swin(window_size=4),
    'one-stage swin': lambda: tiny_swin(window_size=4, depths=(2,), num_heads=(2,)),
}


def converted(make=tiny_vit, checkpointing=False) -> nn.Module:
    model = strengthen(add_gaug(make()))
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith(('gamma_1', 'gamma_2', 'gamma')):  # layer scales start near 0
            nn.init.normal_(parameter)
    model.set_grad_checkpointing(checkpointing)
    return model


def image(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, *sizes: tuple[int, int]) -> Tensor:
    """One step's loss over images of several sizes, each with random targets."""
    losses = []
    for seed, size in enumerate(sizes):
        features = model.forward_features(image(*size, seed=seed))
        weight = torch.randn(features.shape, generator=torch.Generator().manual_seed(seed))
        losses.append((features * weight).mean())
    return sum(losses)


def assert_same_gradients(model: nn.Module, other: nn.Module, *sizes: tuple[int, int]) -> None:
    gradients = parameter_gradients(model, loss_of(model, *sizes))
    expected = parameter_gradients(other, loss_of(other, *sizes))
    for name, gradient in expected.items():
        if gradient is None:  # the head
            assert gradients[name] is None
        else:
            torch.testing.assert_close(gradients[name], gradient, msg=name)


@pytest.mark.parametrize('family', FAMILIES)
def test_maps_of_other_shapes(family):
    """A transposed image has another grid of as many patches; the maps follow the image."""
    model = converted(FAMILIES[family]).eval()
    with torch.no_grad():
        for size in (WIDE, TALL, (64, 64), (48, 160), (160, 16), WIDE):
            if family == 'stem' and min(size) < 32:
                continue
            maps = model.forward_intermediates(image(*size), intermediates_only=True)
            stride = model.feature_info[-1]['reduction']
            assert maps[-1].shape[-2:] == (size[0] // stride, size[1] // stride)
            assert maps[-1].isfinite().all()


def test_the_grid_matters():
    """What the layers use is the image's grid: 24 patches as 4 x 6 and as 6 x 4 differ."""
    model = converted(lambda: tiny_vit(pos_embed='none')).eval()
    wide = image(*WIDE)
    patches = wide.unflatten(2, (4, 16)).unflatten(4, (6, 16))  # (B, 3, 4, 16, 6, 16)
    tall = patches.permute(0, 1, 2, 4, 3, 5).reshape(2, 3, 6, 4, 16, 16)
    tall = tall.permute(0, 1, 2, 4, 3, 5).reshape(2, 3, *TALL)  # the same sequence of patches
    with torch.no_grad():
        torch.testing.assert_close(model.patch_embed(tall).flatten(1, -2),
                                   model.patch_embed(wide).flatten(1, -2))
        assert relative_error(model.forward_features(tall), model.forward_features(wide)) > 1e-3


@pytest.mark.parametrize('family', ['vit', 'rope mixed', 'dinov3'])
def test_padded_images(family):
    """An image that is not whole patches equals the image with zeros at bottom and right."""
    model = converted(FAMILIES[family]).eval()
    model.patch_embed.dynamic_img_pad = True
    small = image(50, 90)
    padded = torch.nn.functional.pad(small, (0, 6, 0, 14))
    with torch.no_grad():
        torch.testing.assert_close(model.forward_features(small), model.forward_features(padded))
    assert model.blocks[0].attn.token_grid.lookup(24) == (4, 6)


def test_padded_swin():
    model = converted(FAMILIES['swin']).eval()
    small = image(50, 90)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_features(small), model.forward_features(
            torch.nn.functional.pad(small, (0, 2, 0, 2))))


@pytest.mark.parametrize('family', FAMILIES)
def test_checkpointing_gives_the_same_gradients(family):
    assert_same_gradients(converted(FAMILIES[family], checkpointing=True),
                          converted(FAMILIES[family]), WIDE, (64, 64))


@pytest.mark.parametrize('make', [tiny_vit, FAMILIES['rope mixed']], ids=['vit', 'rope mixed'])
def test_checkpointing_with_crops_of_two_sizes(make):
    """DINO: blocks of the 14 x 14 grid are computed again after 6 x 6 crops have passed."""
    sizes = (224, 224), (96, 96)
    plain, checkpointed = converted(make), converted(make, checkpointing=True)
    for _ in range(2):
        assert_same_gradients(checkpointed, plain, *sizes)


def test_checkpointing_with_two_shapes_of_one_count():
    plain, model = converted(), converted(checkpointing=True)
    with pytest.raises(ValueError, match=r'grids \(\(4, 6\), \(6, 4\)\), of 24 patches each, .*'
                                         'run backward after each'):
        loss_of(model, WIDE, TALL).backward()
    # In successive steps they are fine, also after that error.
    for size in (WIDE, TALL, TALL, WIDE):
        assert_same_gradients(model, plain, size)
    # Without checkpointing one step may have both.
    loss_of(plain, WIDE, TALL).backward()


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
def test_evaluation_between_forward_and_backward(mode):
    plain, model = converted(), converted(checkpointing=True)
    loss = loss_of(model, WIDE)
    with mode():
        model(image(*TALL))
    gradients = parameter_gradients(model, loss)
    for name, expected in parameter_gradients(plain, loss_of(plain, WIDE)).items():
        if expected is not None:
            torch.testing.assert_close(gradients[name], expected, msg=name)


def test_checkpointing_after_a_stem_without_gradients():
    def loss_of_blocks(model: nn.Module) -> Tensor:
        with torch.no_grad():
            x = model.patch_embed(image(*WIDE))
        x = model._pos_embed(x)
        for block in model.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    model = converted()
    gradients = parameter_gradients(model, loss_of_blocks(model))
    assert gradients['blocks.0.attn.gaug.log_var.weight'].any()


def test_two_models_do_not_share_a_grid():
    models = converted(), converted()
    models[0](image(*WIDE)), models[1](image(*TALL))
    assert [model.blocks[1].attn.token_grid.lookup(24) for model in models] == [(4, 6), (6, 4)]


class MergeTokens(nn.Module):
    """Averages neighbouring patch tokens, as token merging does."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :1], (x[:, 1::2] + x[:, 2::2]) / 2], dim=1)


def test_merged_tokens_have_no_grid():
    model = converted()
    model.blocks.insert(1, MergeTokens())
    with pytest.raises(ValueError, match=r'got 12 patch tokens, but .* grids of \[24\] patches '
                                         r'.*must stay whole \(no patch dropout, merging'):
        model(image(*WIDE))


def test_no_image_yet():
    with pytest.raises(ValueError, match='got 4 patch tokens, .* grids of no patches so far'):
        TokenGrid().lookup(4)


def test_lookup_by_count():
    grid = TokenGrid()
    for shape in ((2, 3), (4, 4), (3, 2)):
        grid.record(shape)
    assert grid.lookup(6) == (3, 2)
    assert grid.lookup(16) == (4, 4)


def compile_counting(model: nn.Module) -> tuple[nn.Module, CompileCounter]:
    torch.compiler.reset()
    counter = CompileCounter()
    return torch.compile(model, backend=counter, fullgraph=True, dynamic=False), counter


SLOW_TO_COMPILE = [pytest.param(family, marks=pytest.mark.slow)
                   for family in ('jumbo', 'one-stage swin')]


@pytest.mark.parametrize('checkpointing', [False, True])
@pytest.mark.parametrize('family', ['vit', 'rope mixed', *SLOW_TO_COMPILE])
def test_compiles_once_per_image_size(family, checkpointing):
    model = converted(FAMILIES[family], checkpointing)
    plain = converted(FAMILIES[family])
    compiled, counter = compile_counting(model)
    for size, num_graphs in [(WIDE, 1), (WIDE, 1), (TALL, 2), (WIDE, 2), (TALL, 2)]:
        out, expected = compiled(image(*size)), plain(image(*size))
        torch.testing.assert_close(out, expected)
        assert counter.frame_count == num_graphs
        gradients = parameter_gradients(model, out.square().mean())
        for name, wanted in parameter_gradients(plain, expected.square().mean()).items():
            torch.testing.assert_close(gradients[name], wanted, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize('family', ['vit', 'one-stage swin'])
def test_compiles_with_inductor(family):
    torch.compiler.reset()
    model = converted(FAMILIES[family])
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    out, expected = compiled(image(*WIDE)), model(image(*WIDE))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    gradients = parameter_gradients(model, out.square().mean())
    for name, wanted in parameter_gradients(model, expected.square().mean()).items():
        torch.testing.assert_close(gradients[name], wanted, rtol=1e-3, atol=1e-5, msg=name)


def test_eager_after_compiled():
    model = converted().eval()
    compiled, _ = compile_counting(model)
    with torch.no_grad():
        for size in (WIDE, TALL, WIDE):
            expected = model(image(*TALL))
            torch.testing.assert_close(compiled(image(*size)), model(image(*size)))
            torch.testing.assert_close(model(image(*TALL)), expected)


def test_features_only_takes_other_sizes():
    getter = strengthen(add_gaug(timm.create_model(
        'vit_tiny_patch16_224', features_only=True, out_indices=(0, 1), img_size=64, embed_dim=48,
        depth=2, num_heads=3, dynamic_img_size=True))).eval()
    assert [tuple(f.shape[-2:]) for f in getter(image(*WIDE))] == [(4, 6), (4, 6)]
    assert [tuple(f.shape[-2:]) for f in getter(image(*TALL))] == [(6, 4), (6, 4)]
