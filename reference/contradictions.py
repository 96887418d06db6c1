"""Contradictions between a paper's tables and its text that concern no equation."""

from __future__ import annotations

from reference.equations import Erratum, passage

passage(
    "expansionnet_v1",
    "4.4",
    Erratum(
        "the two results are reflected in the reinforcement step, as illustrated in Table 3",
        "Table 2",
        "misprint: Table 3 is of the cross-entropy stage alone",
    ),
)
passage(
    "expansionnet_v1",
    "4.5.1, Table 4",
    Erratum(
        "the ensemble outperforms all the other reported scores",
        "the cells",
        "AoANet's ensemble is above both of ours in BLEU-1 (81.6 against 81.5) and BLEU-4 (40.2 "
        "against 40.1), and in cross-entropy in BLEU, ROUGE-L and CIDEr-D",
    ),
)
passage(
    "expansionnet_v2",
    "II, Table IV",
    Erratum(
        "[15] and [16], trained on more data, are omitted during evaluation",
        "Table IV as printed, in which they stand; likewise Table VII",
        "section IV compares with them: outperformed by generative models [15], [16]",
    ),
)
passage(
    "expansionnet_v2",
    "Table IV, ExpansionNet v2, B2 c5",
    Erratum("8.8", "68.8", "misprint: BLEU-2 lies between the row's BLEU-1 and BLEU-3"),
)
passage(
    "middle_out",
    "Table 2, caption",
    Erratum(
        "the ensemble of Pasunuru and Bansal has CIDEr-D 92.4 and ROUGE 92.4",
        "no ROUGE of that ensemble",
        "misprint: the CIDEr-D is repeated; ROUGE-L is 66.9 to 78.6 in all other rows",
    ),
)
passage(
    "middle_out",
    "4.2, Table 2",
    Erratum(
        "dual self-attention applied to the baseline outperforms previous work",
        "the cells",
        "its BLEU-4 of 48.3 is below that of p-RNN (49.9) and of hLSTMat (53.0)",
    ),
)
passage(
    "middle_out",
    "4.2, Table 7",
    Erratum(
        "dual self-attention outperforms the alternate methods for self-attention",
        "the cells",
        "output embedding self-attention has the better CIDEr-D (82.8 against 81.9); hidden "
        "self-attention has the same METEOR and ROUGE-L",
    ),
)
