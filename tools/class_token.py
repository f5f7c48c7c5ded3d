r"""What the class token knows, and what patches know without it.

    python tools/class_token.py CONFIG CHECKPOINT
    python tools/class_token.py --timm vit_base_patch16_224 --images imagenet/val
    python tools/class_token.py CONFIG CHECKPOINT --beside CONFIG CHECKPOINT --names LocAtViT ViT

Of a classifier: top-1, top-5 and cross-entropy with the class token isolated from the patches up to
layer L, with the class token alone from layer L on, and with the head reading means of tokens and
single patches. Of a segmentation model, such as a linear probe: mIoU with the class token isolated.
"""
import argparse
from collections.abc import Sequence

from locat_mmseg.analysis.class_token import INSERTS, REGISTERS
from locat_mmseg.analysis.input_plots import plot_heat_maps, plot_layers
from locat_mmseg.analysis.run_record import Record, check_target
from locat_mmseg.analysis.tables import cells_of, text_table
from locat_mmseg.openmmlab.errors import one_sentence_errors
from locat_mmseg.openmmlab.input_experiments import check_class_token, class_token_table
from locat_mmseg.openmmlab.input_tools import (load_data, load_models, make_input_parser,
                                               write_rows)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_input_parser(__doc__, 'work_dirs/class_token')
    parser.add_argument('--layers', nargs='+', type=int, metavar='L',
                        help='by default all, from 0 to the depth')
    parser.add_argument('--insert', choices=INSERTS, default='propagated', help='the isolated '
                        'class token that meets the patches: propagated through the blocks '
                        '(default), or raw, as it enters the first')
    parser.add_argument('--registers', choices=REGISTERS, default='patches',
                        help='which side register tokens belong to (default: patches)')
    parser.add_argument('--patch', nargs=2, type=int, metavar=('ROW', 'COLUMN'),
                        help='of the single patch; by default the middle one')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        record = Record(__file__, argv)
        args = parse_args(argv)
        check_target(args.out / 'class_token.json')
        models, sources = load_models(args)
        data = load_data(args, models)
        for probed in models:  # all of them, before hours are spent on the first
            check_class_token(probed, data.has_maps)
        tables = {probed.name: class_token_table(
            probed, data, args.batch, args.workers, args.patch and tuple(args.patch),
            layers=args.layers, insert=args.insert, registers=args.registers)
            for probed in models}
        rows = [dict(model=name, **row) for name, table in tables.items() for row in table.rows]
        left_out = {name: table.left_out for name, table in tables.items()}
        maps = [(name, table.heat_maps['top1']) for name, table in tables.items()
                if table.heat_maps]
        path = args.out / 'class_token'
        settings = dict(insert=args.insert, registers=args.registers, batch=args.batch)
        write_rows(record, path, rows, args, models=sources, data=data.describe(),
                   settings=settings, left_out=left_out, top1_by_position={
                       name: values.tolist() for name, values in maps})
        if any(row['layer'] is not None for row in rows):
            plot_layers(rows).savefig(path.with_suffix('.png'), dpi=130)
        if maps:
            plot_heat_maps(maps).savefig(args.out / 'heat_map.png', dpi=130)
        print(text_table(*cells_of(rows)))
        for name, sentences in left_out.items():
            for sentence in sentences:
                print(f'not run for {name}: {sentence}')
        print(f'written to {args.out}')


if __name__ == '__main__':
    main()
