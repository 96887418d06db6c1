"""Right candidates of the recurrent papers in PyTorch; those with lengths on padded batches."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.candidates.right_torch import linear, part, valid


def torch_order(rows):
    """The gates i, f, o, g in PyTorch's order: i, f, g, o."""
    i, f, o, g = rows.chunk(4)
    return torch.cat([i, f, g, o])


def cell(x, h, c, parameters):
    """A step of a batch: its h and c."""
    d_x = x.shape[-1]
    weight, bias = torch_order(parameters["weight"]), torch_order(parameters["bias"])
    of = weight[:, :d_x], weight[:, d_x:], bias, torch.zeros_like(bias)
    return torch.lstm_cell(x, (h, c), *of)


def lstm_cell(x, h, c, parameters):
    return torch.cat(cell(x[None], h[None], c[None], parameters))


def lstm(X, parameters, lengths):
    X = torch.where(valid(X, lengths), X, 0)
    weight, bias = torch_order(parameters["weight"]), torch_order(parameters["bias"])
    d_x, d = X.shape[-1], len(bias) // 4
    with torch.device("meta"):
        module = nn.LSTM(d_x, d, batch_first=True)
    of = {"weight_ih_l0": weight[:, :d_x], "weight_hh_l0": weight[:, d_x:]}
    of |= {"bias_ih_l0": bias, "bias_hh_l0": torch.zeros_like(bias)}
    return torch.func.functional_call(module, of, (X,))[0]


def attentive_lstm(X, s, parameters, lengths):
    mask = valid(s, lengths)
    s = torch.where(mask, s, 0)
    p = parameters
    h = c = X.new_zeros(len(X), len(p["lstm.bias"]) // 4)
    i, f, o, g = p["lstm.weight"].split(h.shape[1])
    of_s = s @ p["score.W_s"].T
    out = []
    for x in X.unbind(1):
        scores = torch.tanh(of_s + (h @ p["score.W_h"].T)[:, None] + p["score.b"]) @ p["score.w"]
        weights = scores.masked_fill(~mask[..., 0], -torch.finfo(X.dtype).max).softmax(1)
        context = (weights[:, None] @ s)[:, 0]
        read, bias = torch.cat([x, h, context], 1), p["lstm.bias"].chunk(4)
        i_t, f_t, o_t = ((read @ W.T + b).sigmoid() for W, b in zip((i, f, o), bias, strict=False))
        c = f_t * c + i_t * (read @ g.T + bias[3]).tanh()
        h = o_t * c.tanh()
        out.append(h)
    return torch.stack(out, 1)


def zoneout(X, parameters, z_h, z_c):
    h = c = torch.zeros_like(z_h[:1])
    out = []
    for x, share_h, share_c in zip(X, z_h, z_c, strict=True):
        new_h, new_c = cell(x[None], h, c, parameters)
        h, c = torch.lerp(new_h, h, share_h), torch.lerp(new_c, c, share_c)
        out.append(h)
    return torch.cat(out)


def recurrent_dropout(X, parameters, keep, p, dropped):
    h = c = X.new_zeros(keep.shape[1])
    out = []
    for x, kept in zip(X, keep, strict=True):
        mask = kept.to(X.dtype) / (1 - p)
        read = torch.cat([x, h * mask if dropped == "state" else h])
        i, f, o, g = (parameters["weight"] @ read + parameters["bias"]).chunk(4)
        update = g.tanh() * mask if dropped == "update" else g.tanh()
        c = f.sigmoid() * c + i.sigmoid() * update
        h = o.sigmoid() * c.tanh()
        out.append(h)
    return torch.stack(out)


def read_only_lstm_cell(x, m, c, read, parameters):
    return torch.stack(read_only_step(x, m, c, read, parameters))


def read_only_step(x, m, c, read, p):
    def gate(name):
        return F.linear(x, p[f"W_{name}x"]) + F.linear(m, p[f"W_{name}m"])

    c = gate("f").sigmoid() * c + gate("i").sigmoid() * gate("c").tanh()
    if read is not None:
        c = c + gate("r").sigmoid() * read
    return gate("o").sigmoid() * c, c


def read_only_lstm(X, parameters, reading, lengths):
    X = torch.where(valid(X, lengths), X, 0)
    m = c = X.new_zeros(len(X), len(parameters["W_im"]))
    out = []
    for t in range(X.shape[1]):
        read = None
        if reading == "image":
            read = X[:, 0]
        elif reading == "previous_input" and t > 0:
            read = X[:, t - 1]
        m, c = read_only_step(X[:, t], m, c, read, parameters)
        out.append(m)
    return torch.stack(out, 1)


def read_only_captioner(features, tokens, parameters, reading):
    p = parameters
    image = features.mean(0, keepdim=True) @ p["W_i"] + p["b_i"]
    X = torch.cat([image, F.embedding(tokens, p["W_e"])])[None]
    m = read_only_lstm(X, p, reading, torch.tensor([X.shape[1]]))[0, 1:]
    return F.log_softmax(m @ p["W_pm"].T, -1)


def reconstruction_loss(H, parameters, lengths):
    read = lstm(H, part(parameters, "lstm"), lengths)[:, 1:]
    error = H[:, :-1] - linear(read, parameters, "fc")
    # a pair of states counts if the later one does
    return torch.where(valid(H, lengths)[:, 1:], error, 0).square().sum((1, 2))


def arnet_joint_loss(log_probs, tokens, H, parameters, lambda_):
    loss = F.nll_loss(log_probs, tokens[1:], reduction="sum")
    return loss + lambda_ * reconstruction_loss(H[None], parameters, torch.tensor([len(H)]))[0]


def mean_centroid_distance(U, V):
    return 1 - F.cosine_similarity(U.mean(0), V.mean(0), dim=0)


def point_wise_distance(U, V):
    return (1 - F.cosine_similarity(U, V)).mean()
