"""Pictures for a captioner's own backbone: as pixels, as features made once, end to end."""

import torch

from benchmarks.data import pixels, scenes
from benchmarks.data.batches import padded_features
from benchmarks.run_folder import load_captioner
from benchmarks.training import stages
from benchmarks.verify.tolerances import SAME_WORK, error, scale
from tests.support.runs import RATES, SHORT, SIZES, main
from torch_impl.models import EndToEnd


def test_pixels_and_cached_features_are_what_the_backbone_makes_of_the_pictures(tmp_path):
    data, seen = scenes.make(train=3, val=2, test=1), pixels.of_scenes()
    backbone = stages.load_backbone("tiny", 0)
    cached = pixels.encoded(data, seen, backbone, tmp_path, "cpu")
    live = pixels.unencoded(data, seen, backbone)
    for name, split in live.splits.items():
        images, lengths = padded_features(split.store, split.image_ids)
        assert lengths.tolist() == [backbone.num_features] * len(split.image_ids)
        with torch.no_grad():
            expected = backbone(images)
        features, _ = padded_features(cached.splits[name].store, split.image_ids)
        assert error(features, expected) <= SAME_WORK * scale(expected), name
    assert len({data.fingerprint, cached.fingerprint, live.fingerprint}) == 3
    assert cached.backbone["backbone"] == "swin"


def test_photographs_through_a_published_backbone_are_trained_on_end_to_end(tmp_path, capsys):
    """From picture files to captions of them, by Swin's weights as they are published."""
    pictures, own = tmp_path / "pictures", tmp_path / "own"
    assert main("scenes", "--num-images", 4, "--num-references", 1, "--out", pictures) == 0
    words = ["--split-percent", "75,25,0", "--min-count", 1]
    table = pictures / "captions.csv"
    assert main("dataset", "--images", pictures, "--captions", table, *words, "--out", own) == 0
    swin = stages.load_backbone("tiny", 5)
    published = {"model": {**swin.state_dict(), "head.weight": torch.zeros(2, swin.d_feature)}}
    torch.save(published, tmp_path / "swin.pth")
    read = stages.load_backbone(str(tmp_path / "swin.pth"), 0)
    assert read.configuration == swin.configuration
    for name, value in swin.state_dict().items():
        assert torch.equal(read.state_dict()[name], value)
    data = ["--karpathy", own / "dataset_own.json", "--images", pictures]
    seen = [*data, "--backbone", tmp_path / "swin.pth", "--preset", "scenes"]
    run = tmp_path / "run"
    words = ["train", "--recipe", "expansionnet_v2", *seen, *SIZES, *SHORT, *RATES]
    assert main(*words, "--out", run) == 0
    model, _ = load_captioner(run / "D")
    assert isinstance(model, EndToEnd)
    capsys.readouterr()
    assert main("caption", pictures, "--checkpoint", run / "D") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
