"""transformers' common tests over every head: `TRANSFORMERS_TESTS=path make conformance`.

What fails, and why, is in differences.yaml.
"""

import unittest

import pytest

from tests.conformance import checkout
from tests.conformance.differences import read_differences

FOLDER = checkout.tests_folder()
if FOLDER is None:
    pytest.skip(f"set {checkout.VARIABLE} to a checkout of transformers", allow_module_level=True)
pytest.importorskip("parameterized", reason="transformers' tests need parameterized: make conformance installs it")

from transformers.models.auto import modeling_auto as auto  # noqa: E402

import tnn  # noqa: E402
from tests.conformance.models import ImageTester, PairTester, TextTester  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the suite warns on purpose
modeling = checkout.load(FOLDER, "test_modeling_common")
generation = checkout.load(FOLDER, "generation.test_utils")
configuration = checkout.load(FOLDER, "test_configuration_common")
training = checkout.load(FOLDER, "test_training_mixin")

# Models inside transformers are in these lists; the mixins look there for the kind of labels that a head wants.
auto.MODEL_MAPPING_NAMES |= {"tnn": "TNNModel", "tnn_image": "TNNImageModel"}
auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES["tnn"] = "TNNForMaskedLM"
auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["tnn"] = "TNNForSequenceClassification"
auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["tnn pairs"] = "TNNForSequencePairClassification"
auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES["tnn"] = "TNNForTokenClassification"
auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES["tnn_image"] = "TNNForImageClassification"

CLASSIFIERS = (tnn.TNNForSequenceClassification, tnn.TNNForTokenClassification)


class Causal(modeling.ModelTesterMixin, generation.GenerationTesterMixin, training.TrainingTesterMixin):
    all_model_classes = (tnn.TNNModel, tnn.TNNForCausalLM, *CLASSIFIERS)
    has_attentions = False  # no attention weights to return
    training_overfit_learning_rate = 3e-3


class TestCausal(Causal, unittest.TestCase):
    model_tester = TextTester()


class TestHybrid(Causal, unittest.TestCase):
    model_tester = TextTester(mixer=["tnn", "transformer"])


class TestWithoutOperator(Causal, unittest.TestCase):
    model_tester = TextTester(mixer="transformer")


class TestStateSpace(Causal, unittest.TestCase):
    model_tester = TextTester(coefficients="poles", decay=0.9, state_space=[{"poles": 4}, {"poles": 6}])


class TestBidirectional(modeling.ModelTesterMixin, unittest.TestCase):
    model_tester = TextTester(is_decoder=False)
    all_model_classes = (tnn.TNNModel, tnn.TNNForMaskedLM, *CLASSIFIERS)
    has_attentions = False


class TestPairs(modeling.ModelTesterMixin, unittest.TestCase):
    model_tester = PairTester(is_decoder=False)
    all_model_classes = (tnn.TNNForSequencePairClassification,)
    has_attentions = False


class TestImage(modeling.ModelTesterMixin, unittest.TestCase):
    model_tester = ImageTester()
    all_model_classes = (tnn.TNNImageModel, tnn.TNNForImageClassification)
    has_attentions = False
    test_resize_embeddings = False  # patches have no vocabulary


class TestConfigurations(unittest.TestCase):
    def test_text(self):
        configuration.ConfigTester(self, config_class=tnn.TNNConfig, hidden_size=37).run_common_tests()

    def test_image(self):
        options = {"config_class": tnn.TNNImageConfig, "has_text_modality": False, "hidden_size": 37}
        configuration.ConfigTester(self, **options).run_common_tests()


def test_the_checkout_is_complete():
    if absent := checkout.missing(FOLDER):
        pytest.skip(f"not in this checkout, and not run: {', '.join(absent)}")


def test_differences_are_of_tests_that_exist():
    named = [(case, test) for case, tests in read_differences().items() for test in tests]
    assert not [f"{case}.{test}" for case, test in named if not hasattr(globals().get(case), test)]
