"""Strip a checkpoint to its weights and class names, and put its hash into its name."""
import argparse
from collections.abc import Sequence

from locat_mmseg.openmmlab.checkpoint_export import publish
from locat_mmseg.openmmlab.errors import one_sentence_errors


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('checkpoint', help='checkpoint of a run')
    parser.add_argument('target', help='NAME.pth; written is NAME-HASH.pth')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        print(publish(args.checkpoint, args.target))


if __name__ == '__main__':
    main()
