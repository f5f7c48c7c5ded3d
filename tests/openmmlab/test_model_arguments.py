"""Arguments that mean the same in every tool that has them."""
import argparse

import pytest
import torch
from tiny_runs import load_tool

from locat_mmseg.openmmlab.frozen_tools import make_evaluation_parser
from locat_mmseg.openmmlab.input_tools import make_input_parser
from locat_mmseg.openmmlab.launch import make_config_parser
from locat_mmseg.openmmlab.model_arguments import (add_device_argument, add_reading_arguments,
                                                   add_size_argument, add_timm_arguments, real)
from locat_mmseg.openmmlab.picture_data import add_picture_arguments
from locat_mmseg.openmmlab.picture_model import add_model_arguments


def picture_parser():
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    add_picture_arguments(parser)
    return parser


def words_of(parser, option):
    """What a parser says of an option; None if it lacks it."""
    action = parser._option_string_actions.get(option)
    return action and (type(action), action.nargs, action.default, action.metavar, action.help)


def test_one_timm_model_and_several():
    parser = argparse.ArgumentParser()
    add_timm_arguments(parser)
    args = parser.parse_args(['--timm', 'a'])
    assert (args.timm, args.weights) == ('a', 'pretrained')
    parser = argparse.ArgumentParser()
    add_timm_arguments(parser, several=True)
    args = parser.parse_args(['--timm', 'a', 'b', '--weights', 'random', 'c.pth'])
    assert (args.timm, args.weights) == (['a', 'b'], ['random', 'c.pth'])
    assert parser.parse_args([]).timm == parser.parse_args([]).weights == []


def test_device_and_images():
    parser = argparse.ArgumentParser()
    add_device_argument(parser)
    add_reading_arguments(parser)
    args = parser.parse_args([])
    assert args.device == ('cuda' if torch.cuda.is_available() else 'cpu')
    assert (args.limit, args.batch, args.workers) == (None, 32, 2)


@pytest.mark.parametrize('option, several', [
    ('--timm', True), ('--weights', True), ('--cfg-options', False), ('--device', False),
    ('--limit', False), ('--batch', False), ('--workers', False)])
def test_tools_say_the_same_of_an_argument(option, several):
    parsers = [make_config_parser(''), make_evaluation_parser(''), picture_parser()]
    if not several:  # otherwise one for each model
        parsers.append(make_input_parser('', 'out'))
    words = [found for found in (words_of(parser, option) for parser in parsers) if found]
    assert len(words) > 1 and len(set(map(repr, words))) == 1


def test_a_size_is_one_or_two_positive_numbers(capsys):
    parser = argparse.ArgumentParser()
    add_size_argument(parser, 'of pictures')
    assert parser.parse_args([]).size is None
    assert parser.parse_args(['--size', '48']).size == [48]
    assert parser.parse_args(['--size', '48', '32']).size == [48, 32]
    for words, text in ((['1', '2', '3'], '3 numbers: expected a side, or height and width'),
                        (['0'], '0: expected a whole number from 1')):
        with pytest.raises(SystemExit):
            parser.parse_args(['--size', *words])
        assert f'argument --size: {text}' in capsys.readouterr().err


@pytest.mark.parametrize('text', ['nan', 'inf', '-inf', 'one'])
def test_numbers_are_finite(text):
    assert real('-0.5') == -0.5
    with pytest.raises(argparse.ArgumentTypeError, match=f'{text}: expected a finite number'):
        real(text)


def test_tools_build_their_parsers_of_them(capsys):
    for name in ('analyze_attention', 'knn', 'top_images', 'class_token'):
        with pytest.raises(SystemExit):
            load_tool(name).main(['--help'])
        text = ' '.join(capsys.readouterr().out.split())
        assert "a file in timm's names, with or without GAug; pretrained (the default" in text
