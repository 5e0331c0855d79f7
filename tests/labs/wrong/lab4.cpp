/// @file
/// Wrong answers to lab 4. Each differs from the solution (tests/labs/solutions/lab4.cpp) in one thing.

#include "tests/labs/wrong/lab4.h"

#include <algorithm>

#include "chapters/04_pipedream/lab/one_f_one_b.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::labs::lab4 {
namespace {

using lab::updated;
using lab::VersionStore;

int minimum_up_to(const std::vector<int>& limits, int rank) {
  return *std::min_element(limits.begin(), limits.begin() + rank + 1);
}

/// 1F1B in which rank r holds held(p, limits, r) micro-batches.
template <class Held>
Schedule schedule_with(int m, const std::vector<int>& limits, const Held& held) {
  const int p = static_cast<int>(limits.size());
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    one_f_one_b_order(
        m, std::max(held(p, limits, r) - 1, 0), [&](int i) { rank.forward(r, i); },
        [&](int i) { rank.backward(r, i); });
  });
}

Schedule one_forward_too_many(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits,
                       [](int p, const auto& given, int r) { return std::min(p - r + 1, minimum_up_to(given, r)); });
}
Schedule one_forward_too_few(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits,
                       [](int p, const auto& given, int r) { return std::min(p - r - 1, minimum_up_to(given, r)); });
}
Schedule without_limits(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits, [](int p, const auto&, int r) { return p - r; });
}
Schedule limit_plus_one(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits,
                       [](int p, const auto& given, int r) { return std::min(p - r, minimum_up_to(given, r) + 1); });
}
Schedule own_limit_only(int m, const std::vector<int>& limits) {
  return schedule_with(
      m, limits, [](int p, const auto& given, int r) { return std::min(p - r, given[static_cast<std::size_t>(r)]); });
}
Schedule smallest_limit_everywhere(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits, [](int p, const auto& given, int r) {
    return std::min(p - r, *std::min_element(given.begin(), given.end()));
  });
}

Schedule warm_up_beyond_the_last(int m, const std::vector<int>& limits) {
  const int p = static_cast<int>(limits.size());
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    const int warm_up = std::min(p - r, minimum_up_to(limits, r)) - 1;  // not min(…, m)
    for (int i = 0; i < warm_up; ++i) {
      rank.forward(r, i);
    }
    for (int i = warm_up; i < m; ++i) {
      rank.forward(r, i);
      rank.backward(r, i - warm_up);
    }
    for (int i = std::max(m - warm_up, 0); i < m; ++i) {
      rank.backward(r, i);
    }
  });
}

Schedule last_backwards_reversed(int m, const std::vector<int>& limits) {
  Schedule schedule = lab::one_f_one_b(m, limits);
  for (auto& actions : schedule.ranks) {
    const auto last_forward = std::find_if(actions.rbegin(), actions.rend(),
                                           [](const Action& action) { return action.operation == Operation::forward; });
    if (last_forward.base() != actions.end()) {
      std::reverse(last_forward.base() + 1, actions.end());
    }
  }
  return schedule;
}

Schedule all_forwards_first(int m, const std::vector<int>& limits) {
  return schedule_with(m, limits, [m](int, const auto& given, int r) { return std::min(m, minimum_up_to(given, r)); });
}

// The store.

void free_unneeded(VersionStore& store) {
  const int newest = store.versions.rbegin()->first;
  std::erase_if(store.versions, [&](const auto& kept) {
    return kept.first != newest && std::none_of(store.in_flight.begin(), store.in_flight.end(),
                                                [&](const auto& flight) { return flight.second == kept.first; });
  });
}

Tensor backward_with_the_newest(VersionStore& store, int microbatch) {
  lab::weights_for_backward(store, microbatch);
  return store.versions.rbegin()->second;
}

void update_in_place(VersionStore& store, const Tensor& gradient, double rate) {
  const auto& [version, weights] = *store.versions.rbegin();
  Tensor same_storage = weights;
  same_storage.copy_from(updated(weights, gradient, rate));
  store.versions[version + 1] = same_storage;
  free_unneeded(store);
}

void update_of_the_oldest(VersionStore& store, const Tensor& gradient, double rate) {
  const int newest = store.versions.rbegin()->first;
  store.versions[newest + 1] = updated(store.versions.begin()->second, gradient, rate);
  free_unneeded(store);
}

Tensor forward_with_the_oldest(VersionStore& store, int microbatch) {
  const auto& [version, weights] = *store.versions.begin();
  store.in_flight[microbatch] = version;
  return weights;
}

Tensor backward_that_frees_nothing(VersionStore& store, int microbatch) {
  const Tensor weights = store.versions.at(store.in_flight.at(microbatch));
  store.in_flight.erase(microbatch);
  return weights;
}
void update_that_frees_nothing(VersionStore& store, const Tensor& gradient, double rate) {
  const auto& [version, weights] = *store.versions.rbegin();
  store.versions[version + 1] = updated(weights, gradient, rate);
}

/// Frees the version, although other micro-batches of the same batch still need it.
Tensor backward_that_frees_its_version(VersionStore& store, int microbatch) {
  const int version = store.in_flight.at(microbatch);
  const auto found = store.versions.find(version);
  const Tensor weights = found == store.versions.end() ? store.versions.rbegin()->second : found->second;
  store.in_flight.erase(microbatch);
  if (version != store.versions.rbegin()->first) {
    store.versions.erase(version);
  }
  return weights;
}

void update_with_the_sign_of_ascent(VersionStore& store, const Tensor& gradient, double rate) {
  lab::update(store, gradient, -rate);
}

Answer solution() { return {lab::one_f_one_b, lab::weights_for_forward, lab::weights_for_backward, lab::update}; }

Answer with_schedule(Schedule (*one_f_one_b)(int, const std::vector<int>&)) {
  Answer answer = solution();
  answer.one_f_one_b = one_f_one_b;
  return answer;
}
Answer with_forward(Tensor (*forward)(VersionStore&, int)) {
  Answer answer = solution();
  answer.weights_for_forward = forward;
  return answer;
}
Answer with_backward(Tensor (*backward)(VersionStore&, int)) {
  Answer answer = solution();
  answer.weights_for_backward = backward;
  return answer;
}
Answer with_update(void (*update)(VersionStore&, const Tensor&, double)) {
  Answer answer = solution();
  answer.update = update;
  return answer;
}

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  return {
      {"warm_up_beyond_the_last", "The warm-up is not cut off at the last micro-batch.",
       "1F1B: the schedule is legal, also with few micro-batches", with_schedule(warm_up_beyond_the_last)},
      {"one_forward_too_many", "The warm-up has p - r forwards, one too many.",
       "1F1B: rank r holds at most min(m, p - r) micro-batches", with_schedule(one_forward_too_many)},
      {"all_forwards_first", "All forwards come before all backwards, as in GPipe.",
       "1F1B: rank r holds at most min(m, p - r) micro-batches", with_schedule(all_forwards_first)},
      {"one_forward_too_few", "The warm-up has p - r - 2 forwards, one too few.",
       "1F1B: the step takes 3 (m + p - 1) units", with_schedule(one_forward_too_few)},
      {"last_backwards_reversed", "The remaining backwards run from the last micro-batch to the first.",
       "1F1B: backwards run in the order of the micro-batches", with_schedule(last_backwards_reversed)},
      {"without_limits", "The limits are ignored.", "limits: no rank holds more than its limit",
       with_schedule(without_limits)},
      {"limit_plus_one", "The limit is taken as the length of the warm-up, so one more is held.",
       "limits: no rank holds more than its limit", with_schedule(limit_plus_one)},
      {"own_limit_only",
       "Each rank looks at its own limit only, and waits for more forwards than the rank before it may run.",
       "limits: no deadlock", with_schedule(own_limit_only)},
      {"smallest_limit_everywhere", "All ranks take the smallest limit, also those before the rank that has it.",
       "limits: the step is no longer than they make necessary", with_schedule(smallest_limit_everywhere)},
      {"forward_with_the_oldest", "A forward takes the oldest version that is kept.",
       "store: a forward uses the newest weights", with_forward(forward_with_the_oldest)},
      {"backward_with_the_newest", "A backward takes the newest weights in place of the stashed ones.",
       "store: a backward uses the weights of its forward", with_backward(backward_with_the_newest)},
      {"update_in_place", "An update writes into the storage of the old version.",
       "store: an update leaves the weights in use alone", with_update(update_in_place)},
      {"update_of_the_oldest", "An update continues from the weights that the gradient was computed with.",
       "store: an update continues from the newest weights", with_update(update_of_the_oldest)},
      {"ascent", "An update adds the gradient.", "store: training equals the rule of stashing, bit for bit",
       with_update(update_with_the_sign_of_ascent)},
      {"frees_too_early", "The first backward of a version frees it, although other micro-batches need it.",
       "store: versions are kept while a micro-batch needs them", with_backward(backward_that_frees_its_version)},
      {"frees_nothing",
       "No version is ever freed.",
       "store: versions are freed when none needs them",
       {lab::one_f_one_b, lab::weights_for_forward, backward_that_frees_nothing, update_that_frees_nothing}},
  };
}

}  // namespace stagecoach::labs::lab4
