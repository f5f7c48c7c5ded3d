"""What a run found, and how it came about."""
import json

import pytest
import torch

from locat_mmseg.analysis.run_record import Record, check_target, write_json


def test_a_record_tells_how_it_came_about(tmp_path):
    record = Record('/somewhere/tools/knn.py', ['a b.py', '-k', '3'])
    record.write(tmp_path / 'new/out.json', 'cpu', results=dict(top1=0.5), seed=3)
    found = json.loads((tmp_path / 'new/out.json').read_text())
    assert list(found) == ['results', 'seed', 'command', 'seconds', 'finished', 'machine']
    assert found['results'] == dict(top1=0.5) and found['seed'] == 3
    assert found['command'] == "python tools/knn.py 'a b.py' -k 3"
    assert 0 <= found['seconds'] < 60
    assert found['machine']['device'] == 'cpu' and found['machine']['torch'] == torch.__version__


def test_the_command_line_of_the_process(monkeypatch):
    monkeypatch.setattr('sys.argv', ['tools/knn.py', 'a.py'])
    record = Record('tools/knn.py', None)
    assert record.words == ['a.py'] and record.command == 'python tools/knn.py a.py'


def test_a_failed_write_leaves_the_file_before_it(tmp_path):
    path = tmp_path / 'new/a.json'
    write_json(path, [1, None])
    with pytest.raises(TypeError):
        write_json(path, {1, 2})
    assert json.loads(path.read_text()) == [1, None]
    assert [file.name for file in path.parent.iterdir()] == ['a.json']


def test_places_where_no_file_can_be_written(tmp_path):
    (tmp_path / 'file').touch()
    check_target(tmp_path / 'file')
    check_target(tmp_path / 'new/folder/a.json')
    with pytest.raises(ValueError, match='is a folder: give the name of a file'):
        check_target(tmp_path)
    with pytest.raises(ValueError, match='a.json cannot be written, .*file is a file: name'):
        check_target(tmp_path / 'file/new/a.json')
