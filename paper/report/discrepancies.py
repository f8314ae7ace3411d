"""Where the paper contradicts itself or the code that its authors released, and what is done here."""

from typing import NamedTuple


class Discrepancy(NamedTuple):
    where: str
    printed: str  # in the paper
    actual: str  # in the released code, or by counting parameters
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
        "5e-4 per 512 images of a batch (2e-3 in total), 0.05, 10 epochs, 5.0, (0.9, 0.999)",
        "as the code; only training can tell which of the two gave the published numbers",
    ),
    Discrepancy(
        "Learning rate on ImageNet",
        "called a peak",
        "multiplied by batch size / 512: 2.5e-4 would become 1e-3",
        "recipes give the peak rate",
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
        "the sizes are corrected; whether the scores are swapped too cannot be known",
    ),
    Discrepancy(
        "S4 and GSS in the table of extrapolation",
        "S4 begins at 30.74 and stays flat, GSS begins at 39.66 and rises to 101.47",
        "the main table has 39.66 for S4, 30.74 for GSS; only S4 has absolute positions, which would make it rise",
        "the two columns are swapped back",
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
        "fifth of 11 at 5,120 tokens in the speed table, after Performer, FNet, Linformer and cosFormer",
        "claims are judged by the table",
    ),
    Discrepancy(
        "Training on Long-Range Arena",
        "the same for all methods, as in Skyformer",
        "learning rates from 1e-4 to 0.01, up to 50 of them tried for TNN; different depths, norms and schedules",
        "at mini scale the same budget for all; recipes at paper scale follow the launch files",
    ),
    Discrepancy(
        "Positions in TNN",
        "only relative positions",
        "on Long-Range Arena, sinusoidal absolute positions and dropout of 0.1 are added",
        "as the code, in the presets of Long-Range Arena",
    ),
    Discrepancy(
        "Reach of TNN",
        "all tokens",
        "on texts of Long-Range Arena, in the main table, coefficients are 0 from lag 1,024 on",
        "as the code",
    ),
    Discrepancy(
        "Position encoder on Long-Range Arena",
        "the same as in the language model",
        "two hidden layers of 16 and one norm; the setting for the number of layers has no effect",
        "as the code",
    ),
    Discrepancy(
        "The operator in two dimensions",
        "not specified",
        "the sum of both directions in the main table and on ImageNet, their product in the released large models",
        "both forms, each where the code uses it",
    ),
    Discrepancy(
        "Fine-tuning on GLUE",
        "one protocol for all",
        "TNN takes the mean over all positions including padding, the other methods the first token; "
        "only softmax attention masks padding",
        "the mean over real tokens for TNN, the first token for the others; padding is masked in all methods",
    ),
    Discrepancy(
        "S4, DSS, gMLP and the Synthesizers in the language models",
        "as published by their authors",
        "S4 and DSS without residual, norm and feed-forward layer; the gate of gMLP is initialized like a dense layer; "
        "the Synthesizers have one head and no projections",
        "S4 and DSS with norm and residual, gMLP with its published initialization, unless as_published is set",
    ),
    Discrepancy(
        "Context of Transformer-LS",
        "512 tokens, as for all",
        "512 hidden vectors are kept from one call to the next",
        "none are kept, unless as_published is set",
    ),
    Discrepancy(
        "Kernel of S4",
        "as published by its authors",
        "half of its modes are missing unless an optional package is installed",
        "all modes",
    ),
    Discrepancy(
        "Rows of Long-Range Arena quoted from Skyformer",
        "next to the authors' own results",
        "closing brackets of ListOps are lost, means are divided by the padded length, black pixels count as padding, "
        "Linformer's projection is not trained",
        "at mini scale all methods read the same tokens",
    ),
    Discrepancy(
        "cosFormer",
        "44.65M parameters",
        "6 layers and 8 heads give this count; later code has 7 layers and one head under the same name",
        "6 layers, 8 heads",
    ),
    Discrepancy(
        "Attention and GLU in the ablation of structure",
        "perplexity 27.40",
        "the variant in the code has no causal mask: a model that sees its targets would be far below 27.40",
        "with the mask; one head and no positions, as in the code",
    ),
    Discrepancy(
        "Inputs of the position encoder in their ablation",
        "compared with TNN as it is",
        "the two other inputs are used without decay, TNN has 0.99",
        "at mini scale all three have 0.99; recipes at paper scale follow the code",
    ),
    Discrepancy(
        "Validation set of Text",
        "not mentioned",
        "its test set, as is common for Long-Range Arena",
        "the same, and the log says so",
    ),
    Discrepancy(
        "Schedule on Long-Range Arena",
        "a cosine over 50,000 updates",
        "Pathfinder, Retrieval and ListOps train longer, so the rate rises again",
        "recipes at paper scale follow the code",
    ),
    Discrepancy(
        "Launch files of Long-Range Arena",
        "released",
        "one has the keys of another program, one passes names instead of values: they do not run as they are",
        "recipes with the intended values",
    ),
)
