"""FLOPs against hand-typed sums, the paper's figures, and mmengine's counter."""
import pytest
import timm
import torch
from mmengine.analysis import FlopAnalyzer
from tiny_timm import tiny_swin, tiny_vit
from torch import nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.dense_gaussian import add_dense_gaug
from locat_mmseg.analysis.flops import count_complexity
from locat_mmseg.layers.attention import BACKENDS, attention_backend

# tiny_vit on 32 x 64 pixels: a grid of 2 x 4 patches, one class token, 3 heads of 16 channels.
H, W, HEADS, D, C, CLASSES, DEPTH = 2, 4, 3, 16, 48, 7, 2
PATCHES, TOKENS = H * W, H * W + 1
BLOCK = (TOKENS * C * 3 * C + 2 * TOKENS * TOKENS * C + TOKENS * C * C  # qkv, attention, projection
         + 2 * TOKENS * C * 4 * C + 2 * 5 * TOKENS * C)  # MLP, norms
PLAIN = PATCHES * C * 3 * 16 * 16 + DEPTH * BLOCK + 5 * TOKENS * C + C * CLASSES
QUERIES = HEADS * PATCHES
GAUSSIAN = (HEADS * TOKENS * D * 3  # variances and strength
            + QUERIES * (3 * 2 + 1 + 3 * 2)  # 3 steps to a variance; softplus; 1 / (x + eps), base
            + QUERIES * (2 + 2 * (H + W)))  # clipped logarithm of the strength; exponents, 2^x
PAIRS = HEADS * PATCHES * PATCHES


def tiny() -> nn.Module:
    return tiny_vit(img_size=(32, 64))


def flops(model: nn.Module, shape=(1, 3, 32, 64)) -> int:
    return count_complexity(model, shape).flops


def test_plain_vit_by_hand():
    cost = count_complexity(tiny(), (1, 3, 32, 64))
    assert cost.flops == PLAIN
    assert cost.parameters == sum(p.numel() for p in tiny().parameters())
    assert cost.parts == {'patch_embed': PATCHES * C * 3 * 16 * 16, 'blocks': DEPTH * BLOCK,
                          'norm': 5 * TOKENS * C, 'head': C * CLASSES}


def test_gaussian_by_hand():
    assert flops(add_gaug(tiny())) == PLAIN + DEPTH * (GAUSSIAN + 2 * PAIRS)


def test_batch_counts_each_image():
    small, large = (flops(tiny(), (batch, 3, 32, 64)) for batch in (1, 3))
    assert large == 3 * small


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('model, side', [(tiny_vit, 64), (tiny_swin, 56)])
def test_count_does_not_depend_on_the_back_end(model, side, backend):
    expected = flops(add_gaug(model()), (1, 3, side, side))
    with attention_backend(backend):
        assert flops(add_gaug(model()), (1, 3, side, side)) == expected


def test_count_does_not_depend_on_fused_attention():
    model = add_gaug(tiny())
    for module in model.modules():
        if hasattr(module, 'fused_attn'):
            module.fused_attn = False
    assert flops(model) == flops(add_gaug(tiny()))


@pytest.mark.parametrize('name, plain, separable, dense', [
    ('vit_tiny_patch16_224', 1.26, 1.26, 1.27),
    ('vit_base_patch16_224', 17.58, 17.60, 17.64),
])
def test_figures_of_the_paper(name, plain, separable, dense):
    """The dense form has the paper's 1.27 and 17.64 G; the separable one needs less."""
    with torch.device('meta'):  # no memory for weights that nobody uses
        counts = [flops(convert(timm.create_model(name)), (1, 3, 224, 224)) / 1e9
                  for convert in (nn.Identity(), add_gaug, add_dense_gaug)]
    assert [round(count, 2) for count in counts] == [plain, separable, dense]


@pytest.mark.parametrize('model, shape', [
    (lambda: tiny_vit(reg_tokens=2), (1, 3, 64, 64)),
    (tiny_swin, (1, 3, 56, 56)),
    (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.BatchNorm2d(5), nn.ReLU(),
                           nn.GroupNorm(5, 5, affine=False),
                           nn.Upsample(scale_factor=2, mode='bilinear')), (2, 3, 17, 20)),
])
def test_mmengine_counts_the_same_without_fused_attention(model, shape):
    model = model().eval()
    for module in model.modules():
        if hasattr(module, 'fused_attn'):
            module.fused_attn = False
    theirs = FlopAnalyzer(model, torch.zeros(shape)).unsupported_ops_warnings(False)
    pooling = theirs.by_operator()['adaptive_avg_pool2d']
    assert flops(model, shape) == theirs.total() - pooling


def test_parts_whose_forward_is_called_directly():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.neck = nn.Linear(4, 8)
            self.head = nn.Sequential(nn.Linear(8, 2, bias=False))

        def forward(self, x):
            return self.head.forward(self.neck(x[..., :4]))

    assert count_complexity(Model(), (1, 3, 1, 4)).parts == {'neck': 3 * 32, 'head': 3 * 16}


def test_operators_that_count_nothing_are_named():
    uncounted = count_complexity(tiny(), (1, 3, 32, 64)).uncounted
    assert 'gelu' in uncounted and not {'addmm', 'native_layer_norm', 'view'} & set(uncounted)


def test_the_model_stays_as_it_was():
    model = add_gaug(tiny()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flops(model)
    assert model.training and all(module.training for module in model.modules())
    assert not any(module.gaug._forward_hooks for module in model.modules()
                   if hasattr(module, 'gaug'))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_input_that_does_not_fit():
    with pytest.raises(ValueError, match=r'VisionTransformer does not take a batch of shape '
                                         r'\(1, 3, 32, 65\).*65.*give a size that it takes'):
        flops(tiny_vit(img_size=(32, 64), dynamic_img_size=False), (1, 3, 32, 65))
