"""Nearest neighbours: both searches against a full sort."""
import pytest
import torch

from locat_mmseg.analysis import neighbors
from locat_mmseg.analysis.neighbors import nearest_neighbors, search_backend, vote_weights


def data(num_queries=11, num_keys=53, channels=7):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(num_queries, channels, generator=generator),
            torch.randn(num_keys, channels, generator=generator))


@pytest.fixture(params=['faiss', 'torch'])
def backend(request, monkeypatch):
    if request.param == 'torch':
        monkeypatch.setattr(neighbors, 'find_spec', lambda name: None)
    assert search_backend('cpu') == request.param


@pytest.mark.parametrize('cuts', [(53, ), (20, 33), (2, 1, 50)], ids=str)
@pytest.mark.parametrize('tile', [(1024, 16384), (3, 5)], ids=str)
def test_as_a_full_sort(backend, monkeypatch, cuts, tile):
    monkeypatch.setattr(neighbors, 'TILE', tile)
    queries, keys = data()
    similarities, positions = nearest_neighbors(queries, keys.split(cuts), k=4)
    expected, order = (queries[:, None] * keys).sum(-1).sort(dim=1, descending=True)
    torch.testing.assert_close(similarities, expected[:, :4])
    assert torch.equal(positions, order[:, :4])


def test_all_keys_can_be_asked_for(backend):
    queries, keys = data(num_keys=3)
    _, positions = nearest_neighbors(queries, [keys], k=3)
    assert positions.sort(dim=1).values.tolist() == [[0, 1, 2]] * 11


def test_double_precision_keeps_its_type(monkeypatch):
    monkeypatch.setattr(neighbors, 'find_spec', lambda name: None)
    queries, keys = (x.double() for x in data())
    assert nearest_neighbors(queries, [keys], k=2)[0].dtype == torch.float64


@pytest.mark.parametrize('k', [-1, 0, 54])
def test_k_out_of_range(k):
    queries, keys = data()
    with pytest.raises(ValueError, match=f'k={k} neighbours of 53 stored features: k must be from'):
        nearest_neighbors(queries, keys.split(20), k)


def test_nothing_is_stored():
    with pytest.raises(ValueError, match='no features are stored: give images with labels'):
        nearest_neighbors(data()[0], [], k=1)


@pytest.mark.parametrize('temperature', [0., -1., float('nan')])
def test_temperatures_that_give_no_weights(temperature):
    with pytest.raises(ValueError, match=f'temperature={temperature}: expected a positive number'):
        vote_weights(torch.ones(2, 3), temperature)


def test_faiss_is_for_the_cpu():
    assert search_backend('cuda') == 'torch'
