from threading import Event, Thread

from paper.harness.locks import locked
from paper.harness.trainings import trained
from paper.harness.trial import Trial


def test_a_model_that_another_process_trains_is_waited_for(context):
    """As when its record is there, and its folder is gone."""
    begun = Event()

    def work(context):
        begun.set()
        return {}

    of = Trial("glue", "tnn", {}, work, part="pre-training")
    with locked(of, context):
        waiting = Thread(target=trained, args=(of, context))
        waiting.start()
        assert not begun.wait(0.2)
    assert begun.wait(10)
    waiting.join()


def test_waiting_is_said(context):
    said = []

    def second():
        with locked(trial, context, said.append):
            pass

    trial = Trial("glue", "tnn", {}, lambda context: {})
    with locked(trial, context, said.append):
        assert not said
        waiting = Thread(target=second)
        waiting.start()
        waiting.join(0.2)
    waiting.join()
    assert said == ["    another process is measuring it: waiting"]
