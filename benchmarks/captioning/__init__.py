"""From a checkpoint to captions: of pictures or a split, by PyTorch or by what was exported."""
