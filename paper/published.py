"""The numbers of the paper's tables, as printed, by our names of the methods.

In the table of extrapolation the columns of S4 and GSS are swapped: each begins with the perplexity of the other. Here
they are corrected.
"""


def _numbers(text: str) -> tuple[float | None, ...]:
    """A dash is a run that did not converge, or did not fit in memory."""
    return tuple(None if word == "-" else float(word) for word in text.split())


# Perplexity on the validation and the test text of WikiText-103, millions of parameters.
ALM = {
    "transformer": _numbers("24.40 24.78 44.65"),
    "transformer-ls": _numbers("23.56 24.05 47.89"),
    "flash": _numbers("25.92 26.70 42.17"),
    "elu": _numbers("27.44 28.05 44.65"),
    "performer": _numbers("62.50 63.16 44.65"),
    "cosformer": _numbers("26.53 27.06 44.65"),
    "synthesizer-dense": _numbers("31.31 32.43 46.75"),
    "synthesizer-random": _numbers("33.68 34.78 44.65"),
    "gmlp": _numbers("28.08 29.13 47.83"),
    "s4": _numbers("38.34 39.66 45.69"),
    "dss": _numbers("39.39 41.07 45.73"),
    "gss": _numbers("29.61 30.74 43.84"),
    "tnn": _numbers("23.98 24.67 48.68"),
}

# Perplexity on the test text in blocks of 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, ... and 14336 tokens.
EXTRAPOLATION = {
    "transformer": _numbers(
        "24.78 41.36 62.35 82.52 100.17 118.42 133.44 188.95 246.06 270.93 "
        "311.65 346.58 372.18 387.29 395.94 426.54 463.5 506.35 486.86"
    ),
    "transformer-ls": _numbers(
        "24.05 23.49 23.21 23.07 22.97 22.97 22.99 23.25 23.83 24.56 "
        "25.45 26.42 27.11 28.78 30.13 31.14 33.21 34.72 36.05"
    ),
    "flash-quad": _numbers(
        "24.69 16950.45 174165.47 346502.88 647788.12 1719873.5 6.25e+06 4.17e+10 2.67e+13 1.26e+15 "
        "1.58e+16 8.11e+16 3.4e+17 1.22e+18 4.03e+18 1.07e+19 2.52e+19 4.96e+19 1.28e+20"
    ),
    "elu": _numbers(
        "28.05 47.35 70.47 91.88 111.56 129.92 147.09 206.88 267.87 299.31 "
        "352.62 389.02 411.5 453.27 457.06 504.19 555.38 584.01 589.83"
    ),
    "performer": _numbers(
        "63.16 159.74 504.3 1020.28 1568.83 2138.5 2693.89 4945.82 7170.91 8443.15 "
        "10234.07 11420.56 12557.09 14847.66 13623.83 14661.77 17959.85 20026.35 20971.31"
    ),
    "cosformer": _numbers(
        "27.06 32.9 55.28 102.88 175.26 267.65 368.02 820.77 1335.51 1735.5 "
        "2146.19 2494.79 2902.24 3028.72 3247.83 3341.91 3644.81 3851.7 3951.26"
    ),
    "synthesizer-dense": _numbers(
        "32.43 101.6 169.48 224.44 265.44 298.55 322.86 399.63 454.85 495.7 "
        "527.2 551.69 565.78 576.15 588.74 598.33 610.25 618.42 627.03"
    ),
    "synthesizer-random": _numbers(
        "34.78 107.36 184.57 250.57 302.48 345.8 390.13 515.35 589.3 661.49 "
        "716.61 739.98 775.63 799.67 802.38 810.71 837.11 844.62 861.72"
    ),
    "gmlp": _numbers(
        "29.13 1.34e+09 8.93e+12 1.58e+15 4.96e+16 5.67e+17 3.59e+18 2.19e+20 1.61e+21 5.08e+21 "
        "1.16e+22 1.98e+22 2.78e+22 3.93e+22 4.93e+22 5.7e+22 7.18e+22 8.04e+22 9.41e+22"
    ),
    "gss": _numbers(
        "30.74 30.41 30.24 30.15 30.08 30.04 30 29.91 29.88 29.85 29.83 29.82 29.82 29.8 29.79 29.79 29.79 29.78 29.78"
    ),
    "dss": _numbers(
        "41.07 40.5 40.22 40.03 39.94 39.85 39.79 39.64 39.59 39.54 "
        "39.51 39.49 39.49 39.46 39.45 39.46 39.44 39.43 39.43"
    ),
    "s4": _numbers(
        "39.66 39.76 39.91 40.82 41.04 41.08 41.53 44.08 48.27 53.32 "
        "57.73 60.25 63.36 74.92 81.87 87.67 92.11 96 101.47"
    ),
    "alibi": _numbers(
        "24.15 23.38 22.98 22.74 22.57 22.52 22.43 22.24 22.17 22.11 22.08 22.07 22.05 22.03 22.02 22 22 22 21.99"
    ),
    "tnn": _numbers(
        "24.67 24.25 24.05 23.91 23.83 23.79 23.73 23.63 23.58 23.54 "
        "23.53 23.51 23.51 23.49 23.48 23.48 23.48 23.47 23.46"
    ),
}
EXTRAPOLATION_AVERAGE = {
    "transformer": 261.36,
    "transformer-ls": 26.71,
    "flash-quad": 1.16e19,
    "elu": 299.86,
    "performer": 8684.79,
    "cosformer": 1764.75,
    "synthesizer-dense": 422.56,
    "synthesizer-random": 556.33,
    "gmlp": 2.41e22,
    "gss": 29.97,
    "dss": 39.75,
    "s4": 60.26,
    "alibi": 22.40,
    "tnn": 23.70,
}

# MNLI (matched, mismatched), QNLI, QQP, SST-2: accuracy; MRPC: F1; CoLA: Matthews' correlation; their mean.
GLUE_TASKS = ("mnli", "mnli-mm", "qnli", "qqp", "sst2", "mrpc", "cola")
GLUE = {
    "transformer": _numbers("79.37 79.07 87.79 88.04 90.25 88.35 38.63 78.79"),
    "transformer-ls": _numbers("77.01 76.78 84.86 86.85 90.25 82.65 40.65 77.01"),
    "flash": _numbers("79.45 80.08 87.10 88.83 90.71 82.50 29.40 76.87"),
    "elu": _numbers("74.87 75.37 82.59 86.90 87.27 83.03 - 70.00"),
    "performer": _numbers("58.85 59.52 63.44 79.10 81.42 82.11 19.41 63.41"),
    "cosformer": _numbers("75.10 75.95 82.61 86.12 89.45 81.93 33.03 74.88"),
    "synthesizer-dense": _numbers("50.93 51.02 62.80 81.33 82.34 81.79 - 58.60"),
    "synthesizer-random": _numbers("52.82 52.13 62.29 78.11 82.22 81.38 4.63 59.08"),
    "gmlp": _numbers("73.30 73.60 80.56 86.48 90.25 82.30 36.06 74.65"),
    "fnet": _numbers("62.45 64.71 73.31 79.43 81.88 82.91 - 63.53"),
    "gfnet": _numbers("66.75 67.45 65.42 80.25 84.40 82.44 9.62 65.19"),
    "afno": _numbers("68.79 69.28 73.20 85.12 88.88 82.35 36.19 71.97"),
    "s4": _numbers("68.45 68.42 72.14 84.61 87.04 83.36 23.01 69.58"),
    "dss": _numbers("35.46 35.22 50.80 65.18 65.37 80.95 6.14 48.45"),
    "gss": _numbers("50.53 51.58 62.58 80.98 85.67 82.11 6.56 60.00"),
    "tnn": _numbers("76.72 76.06 85.06 88.30 90.60 82.96 49.85 78.51"),
}

# Long-Range Arena: accuracy on the test sets, and their mean.
LRA_TASKS = ("text", "listops", "retrieval", "pathfinder", "image")
LRA = {
    "transformer": _numbers("61.95 38.37 80.69 65.26 40.57 57.37"),
    "kernelized": _numbers("60.22 38.78 81.77 70.73 41.29 58.56"),
    "nystromformer": _numbers("64.83 38.51 80.52 69.48 41.30 58.93"),
    "linformer": _numbers("58.93 37.45 78.19 60.93 37.96 54.69"),
    "informer": _numbers("62.64 32.53 77.57 57.83 38.10 53.73"),
    "performer": _numbers("64.19 38.02 80.04 66.30 41.43 58.00"),
    "reformer": _numbers("62.93 37.68 78.99 66.49 48.87 58.99"),
    "bigbird": _numbers("63.86 39.25 80.28 68.72 43.16 59.05"),
    "skyformer": _numbers("64.70 38.69 82.06 70.73 40.77 59.39"),
    "transformer-ls": _numbers("66.62 40.30 81.68 69.98 47.60 61.24"),
    "cosformer": _numbers("67.70 36.50 83.15 71.96 51.23 62.11"),
    "flash": _numbers("64.10 38.70 86.10 70.25 47.40 61.31"),
    "s4": _numbers("85.92 50.60 67.30 72.44 78.07 70.87"),
    "tnn": _numbers("86.39 47.33 89.40 73.89 77.84 74.97"),
}
LRA_LARGE_TASKS = ("text", "listops", "retrieval", "pathfinder", "pathx", "image")
LRA_LARGE = {
    "s4": _numbers("86.82 59.60 90.90 94.20 96.35 88.65 86.09"),
    "tnn": _numbers("87.90 61.04 90.97 93.00 96.10 88.24 86.21"),
}

# Training steps per second at 1,024, 2,048, ... and 5,120 tokens, with 20 rows, on a GPU.
SPEED = {
    "transformer": _numbers("15.34 3.05 - - -"),
    "flash": _numbers("20.49 11.06 8.47 7.23 6.93"),
    "transformer-ls": _numbers("15.43 8.68 6.28 5.24 4.76"),
    "performer": _numbers("28.41 16.23 12.02 10.04 9.06"),
    "cosformer": _numbers("22.94 12.82 9.19 7.79 7.14"),
    "linformer": _numbers("27.17 15.63 11.26 8.77 7.42"),
    "reformer": _numbers("20.16 10.87 7.46 5.69 4.70"),
    "nystromformer": _numbers("14.12 9.62 7.46 6.11 5.26"),
    "s4": _numbers("25.99 14.88 8.35 6.66 5.40"),
    "fnet": _numbers("24.61 14.37 9.18 8.39 7.44"),
    "tnn": _numbers("25.72 15.35 9.90 8.07 7.00"),
}

# ImageNet-1k: accuracy and millions of parameters, of the tiny and the small model.
IMAGE = {"transformer": _numbers("72.20 5.7 79.90 22.0"), "tnn": _numbers("72.29 6.4 79.20 23.4")}

# Perplexity on the validation text of WikiText-103.
STRUCTURE = {"gtu+glu": 23.98, "gtu": 25.19, "attention+glu": 27.40}
RPE_INPUT = {"integer": 23.98, "normalized": 24.11, "sincos": 24.04}
RPE = {"rpe": 23.98, "free": 26.45}
# And the mean over the lengths of extrapolation, on the test text.
DECAY = {
    "0.99": (23.98, 23.70),
    "0.9": (25.28, 25.22),
    "0.95": (24.56, 24.63),
    "0.999": (23.98, 24.56),
    "1": (24.03, 672.72),
    "learned": (27.65, 24.39),
}

# Time and space of a layer: n tokens, d channels, e the size of a convolution's kernel.
COMPLEXITY = {
    "cnn": ("n e d", "n d"),
    "rnn": ("n d^2", "n d"),
    "attention": ("n^2 d", "n^2 d"),
    "linear attention": ("n d^2", "n d"),
    "mlp": ("n^2 d", "n^2 d"),
    "fft": ("n d log n", "n d"),
    "state space": ("n d log n", "n d"),
    "tnn": ("n d log n", "n d"),
}
