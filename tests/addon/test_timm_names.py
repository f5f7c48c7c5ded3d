"""Names of timm's models."""
import pytest

from locat_mmseg.addon.timm_names import check_timm_name


@pytest.mark.parametrize('name', ['test_vit', 'test_vit.r160_in1k', 'qwen3_vit_88m_enc'])
def test_names_that_timm_knows(name):
    check_timm_name(name)


@pytest.mark.parametrize('name, sentence', [
    ('vit_tinny_patch16_224', "'vit_tinny_patch16_224' is no model of timm .*: vit_tiny_patch16_"),
    ('vit_tinny_patch16_224.in1k', 'is no model of timm .*; similar names: vit_tiny_patch16_'),
    ('####', 'similar names: none'),
    ('test_vit.none', "'test_vit.none' has a tag that timm .*it has test_vit.r160_in1k$"),
])
def test_other_names(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_timm_name(name)
