"""Names of timm's models."""
from difflib import get_close_matches

import timm
from timm.models import get_pretrained_cfg


def check_timm_name(name: str) -> None:
    """Refuse a name or a tag that timm does not know.

    Args:
        name: with or without a tag, such as 'vit_tiny_patch16_224.augreg_in21k'.

    Raises:
        ValueError: naming those that it knows.
    """
    if not timm.is_model(name):
        similar = get_close_matches(name.partition('.')[0], timm.list_models(), n=5, cutoff=0.3)
        raise ValueError(f'{name!r} is no model of timm {timm.__version__}; similar names: '
                         f'{", ".join(similar) or "none"}')
    try:
        get_pretrained_cfg(name)
    except RuntimeError as error:  # timm's word for an unknown tag
        tagged = timm.list_models(f'{name.partition(".")[0]}.*', pretrained=True)
        raise ValueError(f'{name!r} has a tag that timm {timm.__version__} does not know; it has '
                         f'{", ".join(tagged) or "none"}') from error
