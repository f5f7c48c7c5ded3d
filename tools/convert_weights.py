"""Convert weights between this package's checkpoints and timm's state dicts, exactly."""
import argparse
from collections.abc import Sequence

from locat_mmseg.openmmlab.checkpoint import read_state_dict
from locat_mmseg.openmmlab.checkpoint_export import write_own, write_timm
from locat_mmseg.openmmlab.errors import one_sentence_errors

WRITERS = {'timm': write_timm, 'locat': write_own}


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', help='checkpoint file (.pth or .safetensors, of this package, '
                        'timm, mmpretrain, mmseg, DINO or DINOv2), http(s) address, timm:NAME or '
                        'hf-hub:OWNER/NAME')
    parser.add_argument('target', help='file to write: .safetensors for timm, .pth for locat')
    parser.add_argument('--to', choices=WRITERS, required=True,
                        help="timm: names of timm and of the LocAtViT reference; locat: a "
                        "classifier's checkpoint, to load with prefix='backbone.'")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        left = WRITERS[args.to](read_state_dict(args.source), args.target)
        print(f'{args.target} written; without a place in it: {", ".join(left) or "nothing"}')


if __name__ == '__main__':
    main()
