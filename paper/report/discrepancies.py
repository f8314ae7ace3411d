"""Where the paper disagrees with itself or with the code that its authors released, and what is done here."""

from typing import NamedTuple


class Discrepancy(NamedTuple):
    where: str
    printed: str  # in the paper
    found: str  # in the released code, or by counting
    here: str


DISCREPANCIES = (
    Discrepancy(
        "Learning rate of the language models",
        "0.005 in the text, 5e-4 in the appendix",
        "5e-4 in both scripts",
        "5e-4",
    ),
    Discrepancy(
        "Depth of the causal TNN",
        "6 layers",
        "7 layers have the printed 48.68M parameters, 6 have 45.40M",
        "7 layers",
    ),
    Discrepancy(
        "Vocabulary of the causal models",
        "50,265",
        "50,264: only this gives the printed sizes of Transformer-LS and FLASH; the masked models have one token more",
        "50,264, and 50,265 in masked models",
    ),
    Discrepancy(
        "Clipping of gradients in the language models",
        "none",
        "at a norm of 1.0 in both scripts",
        "1.0",
    ),
    Discrepancy(
        "Training on ImageNet",
        "peak rate 2.5e-4, weight decay 0.1, warm-up of 5 epochs, clipping 1.0, betas (0.9, 0.98)",
        "5e-4 for each 512 pictures of a batch (2e-3 in all), 0.05, 10 epochs, 5.0, (0.9, 0.999)",
        "as the code; which of the two made the numbers, only training can tell",
    ),
    Discrepancy(
        "Learning rate on ImageNet",
        "called a peak",
        "multiplied by a 512th of the batch: 2.5e-4 would become 1e-3",
        "recipes name the rate at the peak",
    ),
    Discrepancy(
        "Decay of the tiny image model",
        "0.95",
        "0.9 in the released launch file, beside a variant with 0.95",
        "0.9",
    ),
    Discrepancy(
        "Sizes of GFNet and AFNO in the table of GLUE",
        "130.06M and 121.57M",
        "121.57M and 130.06M",
        "the sizes are put right; whether the scores are exchanged as well cannot be known",
    ),
    Discrepancy(
        "S4 and GSS in the table of extrapolation",
        "S4 begins at 30.74 and stays flat, GSS begins at 39.66 and rises to 101.47",
        "the main table has 39.66 for S4, 30.74 for GSS; only S4 has absolute positions, which would make it rise",
        "the two columns change places",
    ),
    Discrepancy(
        "FLASH at a length of 512",
        "26.70 in the main table, 24.69 in that of extrapolation",
        "there are two variants; the size in the main table is that of the linear one",
        "flash in the main table, flash-quad (probably) in the other; both are measured",
    ),
    Discrepancy(
        "Speed",
        "significantly faster than its competitors, in the abstract",
        "fifth of 11 at 5,120 tokens in the table of speed, after Performer, FNet, Linformer and cosFormer",
        "the table is what claims are judged by",
    ),
    Discrepancy(
        "Training on Long-Range Arena",
        "the same for all methods, as in Skyformer",
        "rates from 1e-4 to 0.01, up to 50 of them tried for TNN; other depths, norms and schedules",
        "at mini scale the same budget for all; the paper's recipes follow the launch files",
    ),
    Discrepancy(
        "Positions in TNN",
        "relative ones only",
        "on Long-Range Arena sinusoidal absolute positions are added, and dropout of 0.1",
        "as the code, in the presets of Long-Range Arena",
    ),
    Discrepancy(
        "Reach of TNN",
        "all tokens",
        "on texts of Long-Range Arena, in the main table, coefficients from lag 1,024 on are 0",
        "as the code",
    ),
    Discrepancy(
        "Position encoder on Long-Range Arena",
        "that of the language model",
        "two hidden layers of 16 and one norm; its setting for layers has no effect",
        "as the code",
    ),
    Discrepancy(
        "The operator in two dimensions",
        "not specified",
        "the sum of both directions in the main table and on ImageNet, their product in the released large models",
        "both forms, each where the code has it",
    ),
    Discrepancy(
        "Fine-tuning on GLUE",
        "one protocol for all",
        "TNN takes the mean over all positions, padding included, the others the first token; "
        "softmax attention alone sees which tokens are padding",
        "the mean over real tokens for TNN, the first token for the others; no method sees padding",
    ),
    Discrepancy(
        "S4, DSS, gMLP and the Synthesizers in the language models",
        "as published by their authors",
        "S4 and DSS without residual, norm and feed-forward layer; the gate of gMLP starts as a plain dense layer; "
        "the Synthesizers have one head and no projections",
        "S4 and DSS with norm and residual, gMLP with its own start, unless a preset asks for the faithful form",
    ),
    Discrepancy(
        "Context of Transformer-LS",
        "512 tokens, as for all",
        "512 hidden vectors are carried from one call to the next",
        "none are, unless a preset asks for the faithful form",
    ),
    Discrepancy(
        "Kernel of S4",
        "as published by its authors",
        "half of its modes are missing unless an optional package is installed",
        "all modes",
    ),
    Discrepancy(
        "Rows of Long-Range Arena quoted from Skyformer",
        "beside the authors' own",
        "closing brackets of ListOps are lost, means are divided by the padded length, black pixels count as padding, "
        "Linformer's projection is not trained",
        "at mini scale all methods read the same tokens",
    ),
    Discrepancy(
        "cosFormer",
        "44.65M parameters",
        "6 layers and 8 heads have them; later code has 7 layers and one head under the same name",
        "6 layers, 8 heads",
    ),
    Discrepancy(
        "Attention and GLU in the ablation of structure",
        "perplexity 27.40",
        "the stored variant has no causal mask: a model that sees what it predicts would be far below 27.40",
        "with the mask; one head and no positions, as stored",
    ),
    Discrepancy(
        "Inputs of the position encoder in their ablation",
        "compared with TNN",
        "the two other inputs are registered without decay, TNN has 0.99",
        "at mini scale all three have 0.99; the paper's recipes follow the code",
    ),
    Discrepancy(
        "Validation set of Text",
        "not mentioned",
        "its test set, as is the custom of Long-Range Arena",
        "likewise, and the log says so",
    ),
    Discrepancy(
        "Schedule on Long-Range Arena",
        "a cosine over 50,000 updates",
        "Pathfinder, Retrieval and ListOps train longer, and the rate rises again",
        "the paper's recipes follow the code",
    ),
    Discrepancy(
        "Launch files of Long-Range Arena",
        "released",
        "one has the keys of another program, one passes names in the place of values: they do not run as they are",
        "recipes with the values that were meant",
    ),
)
