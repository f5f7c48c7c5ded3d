r"""What does a model see: all that applies to it, looked at on one page.

    python tools/explore.py CONFIG CHECKPOINT
    python tools/explore.py CONFIG CHECKPOINT --data DIR --masks DIR --void 11
    python tools/explore.py --timm vit_base_patch16_224 --data imagenet/val --limit 256

explore.html holds pictures, curves and tables, each with a sentence on it and with the command of
the tool that makes the same larger, and says what could not be run, and why; explore.json has the
numbers. Both are written after every part. Started again, the tool goes on with the pictures, and
the pass over the data, that its folder has.
"""
import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from locat_mmseg.analysis.exploration import FAILED, explore, exploration_page, values_of
from locat_mmseg.analysis.feature_vis import PRESETS
from locat_mmseg.analysis.run_record import Record, check_target, write_whole
from locat_mmseg.analysis.run_settings import fingerprint
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.explore_data import Subject, load_subject
from locat_mmseg.openmmlab.explore_features import (class_pictures, feature_pictures, locality,
                                                    responses, spatial, top_images)
from locat_mmseg.openmmlab.explore_scores import changes, class_token, foreground
from locat_mmseg.openmmlab.model_arguments import (add_reading_arguments, add_size_argument,
                                                   natural, positive)
from locat_mmseg.openmmlab.picture_model import add_model_arguments

# In the order of the page.
PARTS = dict(features=feature_pictures, classes=class_pictures, top_images=top_images,
             spatial=spatial, locality=locality, class_token=class_token, changes=changes,
             responses=responses, foreground=foreground)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument('--data', metavar='DIR', help='folder of pictures, for a classifier with a '
                        'folder for each class in the order of its label; or a config, whose test '
                        'data are taken; by default those of the config')
    parser.add_argument('--masks', type=Path, metavar='DIR', help='label maps (PNG) under the same '
                        'paths as the pictures of the folder')
    parser.add_argument('--void', type=int, default=255, help='label that does not count in them')
    divisions = parser.add_mutually_exclusive_group()
    divisions.add_argument('--boxes', type=Path, metavar='DIR', help='divide images with one class '
                           'each into foreground and background by the XML files of this folder')
    divisions.add_argument('--foreground', nargs='+', metavar='CLASS', help='divide images with '
                           'label maps: names or numbers of the classes in the foreground')
    add_size_argument(parser, 'of all pictures; by default the size that the model was trained '
                      'with, and for scores what the pipeline of the config gives')
    add_reading_arguments(parser)
    parser.set_defaults(limit=64, workers=0)
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=PARTS, metavar='PART',
                        help=f'only some of {", ".join(PARTS)}')
    parser.add_argument('--layers', nargs='+', metavar='N', help='layers whose features are drawn, '
                        'numbers from 0, or all; by default five from the first to the last')
    parser.add_argument('--features', nargs='+', type=natural, default=[0, 1, 2, 3], metavar='N',
                        help='features drawn of each layer, and classes')
    parser.add_argument('--preset', choices=PRESETS, default='paper',
                        help='how pictures are maximised')
    parser.add_argument('--steps', type=positive, default=101, help='of that (default: 101)')
    parser.add_argument('--copies', type=positive, default=4,
                        help='augmented copies in each step (default: 4)')
    parser.add_argument('--top', type=positive, default=3, help='pictures kept for each feature')
    parser.add_argument('--field-images', type=natural, default=4, metavar='N', help='images for '
                        'the receptive field, which takes a backward pass a block (default: 4)')
    parser.add_argument('--seed', type=int, default=0, help='of every random choice')
    parser.add_argument('--out', type=Path, metavar='DIR',
                        help='by default work_dirs/explore/ and the name of the model')
    parser.add_argument('--redo', action='store_true',
                        help='make anew what the folder has with other settings')
    return parser.parse_args(argv)


def facts_of(subject: Subject, record: Record) -> dict[str, object]:
    """On model, data and run, for the head of the page."""
    args = subject.args
    data = ', '.join(f'{key} {value}' for key, value in (subject.data or {}).items() if value)
    return {
        'model': args.timm or args.config,
        'weights': fingerprint(args.weights if args.timm else args.checkpoint),
        'task': subject.task, 'data': data or None,
        'command': record.command,
        'started': time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.started)),
        'page written': time.strftime('%Y-%m-%d %H:%M:%S')}


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        record = Record(__file__, argv)
        args = parse_args(argv)
        subject = load_subject(args)
        args.out = args.out or Path('work_dirs/explore', subject.probed.name)
        check_target(args.out / 'explore.html')
        parts = {name: make(subject) for name, make in PARTS.items()}
        path = args.out / 'explore.html'

        def write() -> None:
            facts = facts_of(subject, record)
            record.write(path.with_suffix('.json'), args.device, facts=facts,
                         parts=values_of(parts))
            write_whole(path, exploration_page(f'What {subject.probed.name} sees', facts, parts))

        explore(parts, args.parts, write)
        print(f'written: {path}')
        failed = [name for name, part in parts.items() if part.state == FAILED]
        if failed:
            raise UserError(f'{len(failed)} of {len(parts)} parts failed: {", ".join(failed)}; '
                            f'{path} tells why, and holds the others')


if __name__ == '__main__':
    main()
