"""Streaming top-k against sorting everything, resumed or not."""
import pytest
import torch
from tiny_pictures import picture_model, tiny_resnet
from torch.utils.data import Dataset

from locat_mmseg.analysis.feature_hooks import FeatureReader, pool
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.top_images import StreamingTopK, find_top_images


class Noise(Dataset):
    """Random pictures that are made when they are asked for; notes which ones were."""

    def __init__(self, count, size):
        self.count, self.size, self.read = count, size, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        return torch.rand(3, *self.size, generator=torch.Generator().manual_seed(index))


def slow_top_k(scores, k):
    """Best pictures of one feature: by score, then by number."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    return [scores[i] for i in order], order


@pytest.mark.parametrize('batches', [[1] * 9, [4, 5], [9], [2, 6, 1]])
@pytest.mark.parametrize('k', [1, 3, 9])
def test_top_k_of_a_stream_with_ties(batches, k):
    scores = torch.randint(0, 4, (9, 20), generator=torch.Generator().manual_seed(0)).float()
    best, first = StreamingTopK(20, k), 0
    for batch in scores.split(batches):
        best.update(batch, first)
        first += len(batch)
    for feature in range(20):
        values, order = slow_top_k(scores[:, feature].tolist(), k)
        assert best.values[feature].tolist() == values
        assert best.indices[feature].tolist() == order


def test_fewer_pictures_than_k():
    best = StreamingTopK(2, 3)
    best.update(torch.tensor([[-5., 1.], [-6., 2.]]), 0)
    assert best.indices.tolist() == [[0, 1, -1], [1, 0, -1]]
    assert best.values[:, 2].tolist() == [-torch.inf] * 2


@pytest.mark.parametrize('family', ['vit', 'LocAtSwin', 'resnet'])
def test_all_layers_in_one_pass(family):
    model = tiny_resnet() if family == 'resnet' else picture_model(family)
    layers = feature_layers(model, 'channel' if family == 'resnet' else 'hidden')
    data = Noise(7, model.size)
    done = []
    best = find_top_images(model, layers, data, k=3, batch_size=3, report=done.append)
    assert data.read == list(range(7)) and done == [3, 6, 7]
    everything = torch.stack([data[i] for i in range(7)])
    with torch.no_grad():
        expected = FeatureReader(model, layers, reduce=pool)(everything)
    for layer_best, scores in zip(best, expected, strict=True):
        values, indices = scores.T.sort(descending=True, stable=True)
        torch.testing.assert_close(layer_best.values, values[:, :3], rtol=1e-4, atol=1e-5)
        assert (layer_best.indices == indices[:, :3]).float().mean() > 0.99  # rounding, dead ones


def test_an_interrupted_pass_goes_on(tmp_path):
    model = picture_model('vit')
    layers, data = feature_layers(model), Noise(11, model.size)
    whole = find_top_images(model, layers, data, k=2, batch_size=2)
    state = tmp_path / 'run/top.pt'
    run = dict(k=2, batch_size=2, state=state, save_every=2, settings=dict(size=(64, 64)))

    def stop(done):
        if done == 6:
            raise KeyboardInterrupt
    data.read.clear()
    with pytest.raises(KeyboardInterrupt):
        find_top_images(model, layers, data, **run, report=stop)
    assert data.read == list(range(6))
    data.read.clear()
    resumed = find_top_images(model, layers, data, **run)
    assert data.read == list(range(4, 11))  # saved after two batches
    for a, b in zip(resumed, whole):
        assert torch.equal(a.values, b.values) and torch.equal(a.indices, b.indices)
    data.read.clear()
    again = find_top_images(model, layers, data, **run)
    assert data.read == [] and torch.equal(again[1].values, whole[1].values)
    assert sorted(p.name for p in state.parent.iterdir()) == ['top.pt']


def test_other_settings_are_refused_or_redone(tmp_path):
    model = picture_model('vit')
    layers, data = feature_layers(model), Noise(2, model.size)
    state = tmp_path / 'top.pt'
    find_top_images(model, layers, data, k=2, state=state, settings=dict(weights='a'))
    for change, message in ((dict(k=1), r'top.pt was made with k 2 \(now 1\): give the same'),
                            (dict(settings=dict(weights='b')), r"weights 'a' \(now 'b'\)"),
                            (dict(settings={}), r"weights 'a' \(now None\)")):
        with pytest.raises(ValueError, match=message):
            find_top_images(model, layers, data, **{'k': 2, 'settings': dict(weights='a'),
                                                    **change}, state=state)
    best = find_top_images(model, layers, data, k=1, state=state, redo=True)
    assert best[0].values.shape[1] == 1
    with pytest.raises(ValueError, match='k=0: expected at least 1'):
        find_top_images(model, layers, data, k=0)


def test_memory_does_not_grow_with_the_data():
    """What is kept of a layer between batches is one number for each feature."""
    model = picture_model('vit')
    kept = FeatureReader(model, feature_layers(model), reduce=pool)(torch.rand(2, 3, 64, 64))
    assert [t.shape for t in kept] == [(2, 192)] * 2
    best = find_top_images(model, feature_layers(model), Noise(6, model.size), k=2, batch_size=2)
    assert [(b.values.shape, b.indices.shape) for b in best] == [((192, 2), (192, 2))] * 2
