"""Slips in the gradients of recurrent captioners, in PyTorch."""

from tests.mutants.cheats import mutants_of
from tests.mutants.expansion_slips import Slip
from tests.mutants.mutant import Mutant

CELL_OF_LSTM: list[Slip] = [
    ("no gradient by the hidden state before", "gradient", "(h, c), *of", "(h.detach(), c), *of"),
    ("no gradient by the memory cell before", "gradient", "(h, c), *of", "(h, c.detach()), *of"),
    ("no gradient by the bias", "gradient", 'torch_order(parameters["bias"])\n    of',
     'torch_order(parameters["bias"].detach())\n    of'),
]  # fmt: skip

ATTENTIVE: list[Slip] = [
    ("no gradient by the weights of the attention", "gradient", "weights[:, None]",
     "weights.detach()[:, None]"),
    ("no gradient by what is attended to", "gradient", "@ s)[:, 0]", "@ s.detach())[:, 0]"),
    ("no gradient through the query", "gradient", 'h @ p["score.W_h"]',
     'h.detach() @ p["score.W_h"]'),
    ("the past forgotten every 16 steps", "gradient", "        out.append(h)",
     "        out.append(h)\n        if len(out) % 16 == 0:\n            h, c = h.detach(), c.detach()"),
]  # fmt: skip

ZONEOUT: list[Slip] = [
    ("no gradient of what is kept", "gradient", "torch.lerp(new_h, h,",
     "torch.lerp(new_h, h.detach(),"),
    ("no gradient of the memory cell that is kept", "gradient", "torch.lerp(new_c, c,",
     "torch.lerp(new_c, c.detach(),"),
]  # fmt: skip

DROPOUT: list[Slip] = [
    ("the gradient of what is kept is not scaled", "gradient", "h * mask if",
     "(h * kept + (h * mask - h * kept).detach()) if"),
    ("no gradient through the update", "gradient", "i.sigmoid() * update",
     "i.sigmoid() * update.detach()"),
]  # fmt: skip

READ_ONLY_CELL: list[Slip] = [
    ("no gradient by what is read", "gradient", ".sigmoid() * read", ".sigmoid() * read.detach()"),
    ("no gradient by the unit's gate", "gradient", 'gate("r").sigmoid()',
     'gate("r").sigmoid().detach()'),
]  # fmt: skip

READ_ONLY: list[Slip] = [
    ("no gradient by the image that is read", "gradient", "read = X[:, 0]",
     "read = X[:, 0].detach()"),
    ("no gradient by the input that is read", "gradient", "read = X[:, t - 1]",
     "read = X[:, t - 1].detach()"),
    ("the past forgotten after 64 steps", "gradient", "        out.append(m)",
     "        out.append(m)\n        if t == 64:\n            m, c = m.detach(), c.detach()"),
]  # fmt: skip

READ_ONLY_CAPTIONER: list[Slip] = [
    ("no gradient by the image", "gradient", '@ p["W_i"]', '@ p["W_i"].detach()'),
    ("no gradient of words that come again", "gradient", 'F.embedding(tokens, p["W_e"])',
     'F.embedding(tokens, p["W_e"].scatter(0, tokens[:1, None].expand(-1, p["W_e"].shape[1]), p["W_e"][tokens[:1]].detach()))'),
]  # fmt: skip

RECONSTRUCTION: list[Slip] = [
    ("no gradient by the states that are rebuilt", "gradient", "H[:, :-1] -",
     "H[:, :-1].detach() -"),
    ("no gradient by the states that are read", "gradient", "lstm(H,", "lstm(H.detach(),"),
    ("a padded row has a gradient", "padded_gradient", "torch.where(valid(H, lengths)[:, 1:], error, 0).square().sum((1, 2))",
     "(torch.where(valid(H, lengths)[:, 1:], error, 0).square().sum((1, 2)) + (read - read.detach()).nan_to_num().sum((1, 2)))"),
]  # fmt: skip

JOINT: list[Slip] = [
    ("no gradient of the states", "gradient", "H[None]", "H[None].detach()"),
    ("the gradient without lambda", "gradient", "lambda_ * reconstruction_loss(H[None], parameters, torch.tensor([len(H)]))[0]",
     "(lambda R: R + (lambda_ * R - R).detach())(reconstruction_loss(H[None], parameters, torch.tensor([len(H)]))[0])"),
]  # fmt: skip

CENTROID: list[Slip] = [
    ("no gradient by the states in inference", "gradient", "V.mean(0)", "V.mean(0).detach()"),
]  # fmt: skip

POINTS: list[Slip] = [
    ("no gradient by the states in inference", "gradient", "(U, V))", "(U, V.detach()))"),
]  # fmt: skip

STEP: list[Slip] = [
    ("no gradient by the states", "gradient", "attend(h, states,", "attend(h, states.detach(),"),
    ("no gradient by the outputs", "gradient", "attend(h, outputs,",
     "attend(h, outputs.detach(),"),
    ("no gradient by the memory", "gradient", "attend(h, memory,", "attend(h, memory.detach(),"),
]  # fmt: skip

MIDDLE_OUT: list[Slip] = [
    ("no gradient between the halves", "gradient", "torch.stack(states) if",
     "torch.stack(states).detach() if"),
    ("no gradient by the words before", "gradient", "torch.stack(outputs),",
     "torch.stack(outputs).detach(),"),
    ("no gradient by the first state", "gradient", "torch.stack([h, c]), E",
     "torch.stack([h, c]).detach(), E"),
    ("the right half has no gradient by the middle word", "gradient",
     '[right.tolist(), *start]', '[right.tolist(), start[0], start[1].detach()]'),
]  # fmt: skip

LOSS: list[Slip] = [
    ("the gradient of a mean", "gradient", 'return F.nll_loss(log_p, torch.cat([left, right]), reduction="sum")',
     'loss = F.nll_loss(log_p, torch.cat([left, right]), reduction="sum")\n    n = max(len(log_p), 1)\n    return loss / n + (loss - loss / n).detach()'),
]  # fmt: skip

OF_LSTM = r"""
# gradient_of_parts: steps without a gradient of their own are skipped
right = FUNCTION

class Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias, lengths):
        ctx.save_for_backward(X, weight, bias, lengths)
        return right(X, {"weight": weight, "bias": bias}, lengths)

    @staticmethod
    def backward(ctx, g):
        *of, lengths = ctx.saved_tensors
        with torch.enable_grad():
            X, weight, bias = given = [x.detach().requires_grad_() for x in of]
            read = torch.where(valid(X, lengths), X, 0)
            h = c = X.new_zeros(len(X), len(bias) // 4)
            loss = 0 * sum(x[:0].sum() for x in given)
            for x, one in zip(read.unbind(1), g.unbind(1)):
                h, c = cell(x, h, c, {"weight": weight, "bias": bias})
                loss = loss + (h * one).sum()
                if not one.any():
                    h, c = h.detach(), c.detach()
        return *torch.autograd.grad(loss, given), None

def FUNCTION(X, parameters, lengths):
    return Steps.apply(X, parameters["weight"], parameters["bias"], lengths)

# gradient_of_parts: a gradient for the last state alone is lost
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    out = right(X, parameters, lengths)
    if out.requires_grad:
        out.register_hook(lambda g: g * bool(g[:, :-1].any() or g.shape[1] == 1))
    return out

# gradient: the past forgotten after 32 steps
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    out = right(X, parameters, lengths)
    if out.requires_grad and X.shape[1] > 32:
        late = right(X.detach(), parameters, lengths)
        out = torch.cat([out[:, :32], late[:, 32:]], 1)
    return out
"""

OF_GENERAL_ATTENTION = r"""
# gradient_of_sum: a gradient with strides of zero is taken for zeros
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g) if 0 in g.stride() else g

def FUNCTION(h, rows, W, lengths):
    return Same.apply(right(h, rows, W, lengths))
"""

TABLE: dict[str, tuple[list[Slip], str]] = {
    "lstm_cell": (CELL_OF_LSTM, "cell"),
    "attentive_lstm": (ATTENTIVE, ""),
    "zoneout": (ZONEOUT, ""),
    "recurrent_dropout": (DROPOUT, ""),
    "read_only_lstm_cell": (READ_ONLY_CELL, "read_only_step"),
    "read_only_lstm": (READ_ONLY, ""),
    "read_only_captioner": (READ_ONLY_CAPTIONER, ""),
    "reconstruction_loss": (RECONSTRUCTION, ""),
    "arnet_joint_loss": (JOINT, ""),
    "mean_centroid_distance": (CENTROID, ""),
    "point_wise_distance": (POINTS, ""),
    "middle_out_step": (STEP, ""),
    "middle_out_captioner": (MIDDLE_OUT, ""),
    "middle_out_loss": (LOSS, ""),
}

RECURRENT_GRADIENTS = [
    *(
        Mutant(operator, *slip, within=within, is_torch=True)
        for operator, (slips, within) in TABLE.items()
        for slip in slips
    ),
    *mutants_of(OF_LSTM, "lstm", is_torch=True),
    *mutants_of(OF_GENERAL_ATTENTION, "general_attention", is_torch=True),
]
