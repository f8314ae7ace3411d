"""One protocol for the states of all causal mixers: tnn.streaming.State."""

import copy
import pickle
import random

import pytest
import torch

from tnn.mixers import find_mixer, list_mixers
from tnn.streaming import State, new_state

SIZE, LENGTH = 16, 23
WITHOUT_STATE = {"transformer-ls", "cosformer", "flash-quad", "dss"}  # outputs change as tokens are added, or no cache
CAUSAL = [name for name in list_mixers() if find_mixer(name).cls.has_causal_form]
CROPPABLE = {"tnn", "gtu", "transformer", "attention", "alibi", "gmlp", "synthesizer-dense", "synthesizer-random"}
CROPPABLE |= {"s4", "gss"}

with_state = pytest.mark.parametrize("name", [name for name in CAUSAL if name not in WITHOUT_STATE])


@pytest.fixture(autouse=True)
def _no_grad(one_thread):
    with torch.no_grad():
        yield


def mixer_of(name, size=SIZE, **options):
    entry = find_mixer(name)
    heads = {"num_heads": 2} if "num_heads" in entry.cls.option_names() else {}
    mixer = entry.cls(size, causal=True, **heads, **entry.small_options, **options).double().eval()
    for parameter in mixer.parameters():
        if parameter.ndim == 1 or parameter.abs().max() < 0.01:  # gates that start closed would hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    return mixer


def tokens(rows, length=LENGTH):
    return torch.randn(rows, length, SIZE, dtype=torch.float64)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", CAUSAL)
def test_who_has_a_state(name):
    assert (mixer_of(name).state_owner is None) == (name in WITHOUT_STATE)
    entry = find_mixer(name)
    assert entry.cls(SIZE, **entry.small_options).state_owner is None  # bidirectional


@with_state
def test_a_new_state_is_empty(name):
    mixer = mixer_of(name)
    state = new_state(mixer.state_owner)
    assert isinstance(state, State)
    assert state.owner is mixer.state_owner
    assert (state.seen, state.batch_size) == (0, None)
    assert state.croppable == (name in CROPPABLE)


@with_state
@pytest.mark.parametrize("cuts", [[23], [1] * 23, [7, 1, 1, 9, 5]])
def test_parts_are_the_complete_sequence(name, cuts):
    mixer, x = mixer_of(name), tokens(2)
    state = new_state(mixer.state_owner)
    parts, seen = [], 0
    for part in x.split(cuts, 1):
        parts.append(mixer(part, state=state))
        seen += part.shape[1]
        assert (state.seen, state.batch_size) == (seen, 2)
    close(torch.cat(parts, 1), mixer(x))


@with_state
def test_padding_is_skipped(name):
    mixer, x = mixer_of(name), tokens(2)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, :4] = False
    state = new_state(mixer.state_owner)
    y = torch.cat([mixer(x[:, :9], mask[:, :9], state), mixer(x[:, 9:], None, state)], 1)
    assert (state.seen, state.batch_size) == (LENGTH, 2)
    close(y[0, 4:], mixer(x[:1, 4:])[0])
    close(y[1], mixer(x[1:])[0])


@with_state
def test_reset_forgets_everything(name):
    mixer, x = mixer_of(name), tokens(2)
    state = new_state(mixer.state_owner)
    mixer(tokens(3), state=state)
    state.reset()
    assert (state.seen, state.batch_size) == (0, None)
    assert state.owner is mixer.state_owner
    close(mixer(x, state=state), mixer(x))


@with_state
def test_crop_removes_the_newest_inputs_or_is_refused(name):
    mixer, x = mixer_of(name), tokens(2)
    state = new_state(mixer.state_owner)
    mixer(x[:, :9], state=state)
    mixer(tokens(2, 3), state=state)
    if not state.croppable:
        with pytest.raises(ValueError, match="cannot remove tokens"):
            state.crop(3)
        assert state.seen == 12
        return
    with pytest.raises(ValueError, match="cannot remove 13 tokens: only 12 have been seen"):
        state.crop(13)
    state.crop(3)
    assert (state.seen, state.batch_size) == (9, 2)
    close(mixer(x[:, 9:], state=state), mixer(x)[:, 9:])


@pytest.mark.parametrize("name", sorted(CROPPABLE))
@pytest.mark.parametrize("back", [2, 5, 12])
def test_crop_is_exact_after_padding(name, back):
    """On the left, and among what is removed: each row loses its real tokens of the newest inputs."""
    mixer, x, new = mixer_of(name), tokens(3, 12), tokens(3, 6)
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, :4] = mask[1, 8:11] = False
    state = new_state(mixer.state_owner)
    mixer(x, mask, state)
    state.crop(back)
    assert state.seen == 12 - back
    y = torch.cat([mixer(new[:, :1], state=state), mixer(new[:, 1:], state=state)], 1)
    for row in range(3):
        kept = x[row, : 12 - back][mask[row, : 12 - back]]
        close(y[row], mixer(torch.cat([kept, new[row]])[None])[0, -6:])


@with_state
def test_a_state_is_plain_data(name):
    """Pickled without its module, it goes on in one of the same structure and is refused by another."""
    mixer, x = mixer_of(name), tokens(2)
    state = new_state(mixer.state_owner)
    for part in x[:, :9].split([7, 1, 1], 1):
        mixer(part, state=state)
    data = pickle.dumps(state)
    assert len(data) < 20_000
    twin = pickle.loads(data)
    assert (twin.owner, twin.seen, twin.batch_size) == (None, 9, 2)
    if name != "gss":  # its operator has as many channels in both
        with pytest.raises(ValueError, match="another structure"):
            twin.bind(mixer_of(name, 2 * SIZE).state_owner)
    twin.bind(mixer.state_owner)
    close(mixer(x[:, 9:], state=twin), mixer(x)[:, 9:])


@with_state
def test_select_keeps_rows_in_order(name):
    mixer, x = mixer_of(name), tokens(3)
    state = new_state(mixer.state_owner)
    state.select(torch.tensor([0]))  # nothing to select from yet
    mixer(x[:, :9], state=state)
    rows = torch.tensor([2, 0, 0, 2])
    state.select(rows)
    assert (state.seen, state.batch_size) == (9, 4)
    close(mixer(x[rows, 9:], state=state), mixer(x)[rows, 9:])


@with_state
def test_copies_are_independent(name):
    mixer, x = mixer_of(name), tokens(2)
    state = new_state(mixer.state_owner)
    mixer(x[:, :9], state=state)
    twin = copy.deepcopy(state)
    assert isinstance(twin, State)
    assert twin.owner is state.owner
    for _ in range(3):  # also past the end of a block or chunk
        mixer(tokens(2, 5), state=twin)
    twin.select(torch.tensor([1]))
    assert (twin.seen, twin.batch_size) == (24, 1)
    assert (state.seen, state.batch_size) == (9, 2)
    close(mixer(x[:, 9:], state=state), mixer(x)[:, 9:])
    twin.reset()
    assert state.seen == LENGTH


@with_state
def test_another_batch_size_is_refused(name):
    mixer = mixer_of(name)
    state = new_state(mixer.state_owner)
    mixer(tokens(2, 4), state=state)
    with pytest.raises(ValueError, match="2") as error:
        mixer(tokens(3, 4), state=state)
    assert "\n" not in str(error.value)


# --- rows of any age


JOINING = {"tnn", "gtu", "transformer", "attention", "alibi", "elu", "performer", "gss", "s4"}
AGES = (1, 2, 3, 7, 63, 64, 65, 131)  # around the ends of blocks, and primes


def read(mixer, x, parts):
    """The state after x (1, n, d), read in parts, of which the last are single tokens."""
    state = new_state(mixer.state_owner)
    for part in x.split(max(1, x.shape[1] // parts), 1):
        mixer(part, state=state)
    return state


@with_state
def test_which_states_can_be_joined(name):
    mixer = mixer_of(name)
    state, other = (read(mixer, tokens(1, n), 1) for n in (4, 7))
    if name not in JOINING:
        with pytest.raises(ValueError, match=r"^rows of different ages cannot share a \w+$"):
            state.join([other])
        return
    state.join([other])
    assert (state.seen, state.batch_size, other.batch_size) == (7, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(JOINING))
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_any_age_go_on_as_if_alone(name, seed):
    """They come and go at random times; a row that left goes on alone."""
    choose, mixer, x = random.Random(seed), mixer_of(name), tokens(6, 260)
    expected, ages = mixer(x), choose.sample(AGES, 6)
    alone = {k: read(mixer, x[k : k + 1, :age], choose.randint(1, 9)) for k, age in enumerate(ages)}
    batch, members = alone.pop(0), [0]
    for _ in range(5):
        coming = [k for k in sorted(alone) if choose.random() < 0.5]
        before = copy.deepcopy([alone[k].content() for k in coming])
        batch.join([alone[k] for k in coming])
        torch.testing.assert_close([alone.pop(k).content() for k in coming], before, rtol=0, atol=0)
        members += coming
        for _ in range(choose.randint(1, 20)):
            y = mixer(torch.stack([x[k, ages[k]] for k in members]).unsqueeze(1), state=batch)
            close(y[:, 0], torch.stack([expected[k, ages[k]] for k in members]))
            for k in members:
                ages[k] += 1
        if len(members) > 1:
            place = choose.randrange(len(members))
            leaving, left = copy.deepcopy(batch), members.pop(place)
            leaving.select(torch.tensor([place]))
            leaving.unpad(ages[left])
            assert (leaving.seen, leaving.batch_size) == (ages[left], 1)
            alone[left] = leaving
            batch.select(torch.tensor([k for k in range(len(members) + 1) if k != place]))
            batch.unpad(max(ages[k] for k in members))
    for k, state in alone.items():
        close(mixer(x[k : k + 1, ages[k] :], state=state)[0], expected[k, ages[k] :])


@pytest.mark.parametrize("name", sorted(JOINING))
def test_a_row_that_has_seen_nothing_but_padding_joins(name):
    mixer, x = mixer_of(name), tokens(2, 12)
    batch, empty = read(mixer, x[:1, :9], 2), new_state(mixer.state_owner)
    mixer(tokens(1, 1), torch.zeros(1, 1, dtype=torch.bool), empty)
    batch.join([empty])
    new = torch.stack([x[0, 9:], x[1, :3]])
    y = torch.cat([mixer(part, state=batch) for part in new.split(1, 1)], 1)
    close(y[0], mixer(x[:1])[0, 9:])
    close(y[1], mixer(x[1:, :3])[0])


@pytest.mark.parametrize("name", sorted(JOINING & CROPPABLE))
def test_a_joined_state_removes_what_came_after(name):
    mixer, x = mixer_of(name), tokens(2, 30)
    batch = read(mixer, x[:1, :9], 2)
    batch.join([read(mixer, x[1:, :20], 2)])
    for k in range(3):
        mixer(torch.stack([x[0, 9 + k], x[1, 20 + k]]).unsqueeze(1), state=batch)
    batch.crop(2)
    assert batch.seen == 21
    y = mixer(torch.stack([x[0, 10:13], x[1, 21:24]]), state=batch)
    close(y[0], mixer(x[:1])[0, 10:13])
    close(y[1], mixer(x[1:])[0, 21:24])
    if name in ("transformer", "attention", "alibi"):  # their padding stays among the keys
        return
    with pytest.raises(ValueError, match="cannot remove 6 tokens: there was padding before the newest 4"):
        batch.crop(6)
