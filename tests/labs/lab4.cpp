#include "tests/labs/lab4.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "parallel/schedule/rank_actions.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/lab4_stashing.h"
#include "tests/labs/schedule_checks.h"

namespace stagecoach::labs::lab4 {
namespace {

constexpr const char* kOrder = "chapters/04_pipedream/README.md, \"The program\"";
constexpr const char* kHeld =
    "scripts/lab.sh hint 4 2 1: a rank that warms up with k - 1 forwards holds at most k micro-batches";
constexpr const char* kLimits = "scripts/lab.sh hint 4 2 1: which forwards of the rank before it does a rank wait for?";
constexpr const char* kShortest = "whose limits decide how many micro-batches a rank holds? scripts/lab.sh hint 4 2 1";
constexpr const char* kVersions = "chapters/04_pipedream/README.md, \"Without the flush\"";
constexpr const char* kStore = "chapters/04_pipedream/lab/version_store.h: what `versions` holds after each call";

/// One call of the generator.
struct Question {
  int microbatches;
  std::vector<int> limits;
  ScheduleCase made_for() const {
    return {.ranks = static_cast<int>(limits.size()),
            .microbatches = microbatches,
            .more = fmt::format(", limits {}", fmt::join(limits, ", "))};
  }
};

/// Limits that bind nowhere.
std::vector<int> no_limits(int ranks) { return std::vector<int>(static_cast<std::size_t>(ranks), 100); }

std::vector<Question> unlimited() {
  const int p = varied("lab 4 ranks", 4, 6);
  return {{8, no_limits(4)}, {2 * p + 1, no_limits(p)}, {3, no_limits(1)}, {1, no_limits(3)}, {p - 1, no_limits(p)}};
}

/// Where each rank may hold at least as much as the one after it.
std::vector<Question> falling_limits() {
  const int m = varied("lab 4 micro-batches", 8, 12);
  return {{m, {2, 2, 2, 1}}, {m, {3, 3, 2, 1}}, {m, {1, 1, 1}}, {m, {3, 2, 2, 1, 1}}, {2, {3, 3, 3, 3}}};
}

/// Where a rank may hold less than one after it.
std::vector<Question> rising_limits() {
  const int m = varied("lab 4 micro-batches", 8, 12);
  return {{m, {2, 4, 4, 4}}, {m, {1, 2, 3}}, {m, {4, 1, 4, 4}}, {m, {5, 2, 4, 1, 3}}, {3, {2, 8, 8, 8, 8}}};
}

/// A rank's forward needs that of the rank before it, so it never has more micro-batches in flight than that one.
Schedule as_many_as_allowed(const Question& question) {
  const auto& [m, limits] = question;
  const int p = static_cast<int>(limits.size());
  return for_each_rank(empty_schedule(p, m), [&](RankActions rank, int r) {
    const int allowed = *std::min_element(limits.begin(), limits.begin() + r + 1);
    one_f_one_b_order(
        m, std::min(p - r, allowed) - 1, [&](int i) { rank.forward(r, i); }, [&](int i) { rank.backward(r, i); });
  });
}

/// Calls body(schedule, case) for the answer to each question.
template <class Body>
void for_each_schedule(const Answer& answer, const std::vector<std::vector<Question>>& questions, const Body& body) {
  for (const auto& list : questions) {
    for (const Question& question : list) {
      set_case(to_string(question.made_for()));
      body(answer.one_f_one_b(question.microbatches, question.limits), question);
    }
  }
}

void legal_without_limits(const Answer& answer) {
  for_each_schedule(answer, {unlimited()}, [](const Schedule& schedule, const Question& question) {
    require_legal(schedule, question.made_for(), kOrder);
  });
}

void memory_of_1f1b(const Answer& answer) {
  for_each_schedule(answer, {unlimited()}, [](const Schedule& schedule, const Question& question) {
    const ScheduleCase made_for = question.made_for();
    std::vector<int> most;
    for (int rank = 0; rank < made_for.ranks; ++rank) {
      most.push_back(std::min(made_for.microbatches, made_for.ranks - rank));
    }
    require_activations(schedule, most, made_for, kHeld);
  });
}

void time_of_1f1b(const Answer& answer) {
  for_each_schedule(answer, {unlimited()}, [](const Schedule& schedule, const Question& question) {
    const ScheduleCase made_for = question.made_for();
    require_time(schedule, 3.0 * (made_for.microbatches + made_for.ranks - 1), made_for, kOrder);
  });
}

void backwards_in_order(const Answer& answer) {
  for_each_schedule(answer, {unlimited(), falling_limits()}, [](const Schedule& schedule, const Question& question) {
    require_backwards_in_order(schedule, question.made_for(),
                               "docs/reference/schedule_tables.md, \"The order of gradients\"");
  });
}

void keeps_to_the_limits(const Answer& answer) {
  const auto questions = {falling_limits(), rising_limits()};
  for_each_schedule(answer, questions, [](const Schedule& schedule, const Question& question) {
    require_activations(schedule, question.limits, question.made_for(), kHeld);
  });
}

void no_deadlock(const Answer& answer) {
  const auto questions = {falling_limits(), rising_limits()};
  for_each_schedule(answer, questions, [](const Schedule& schedule, const Question& question) {
    require_legal(schedule, question.made_for(), kLimits);
  });
}

void no_longer_than_necessary(const Answer& answer) {
  const auto questions = {falling_limits(), rising_limits()};
  for_each_schedule(answer, questions, [](const Schedule& schedule, const Question& question) {
    require_time(schedule, simulated(as_many_as_allowed(question)).seconds, question.made_for(), kShortest);
  });
}

// The store. Each of these checks one call by itself, with weights that are easy to recognise; lab4_stashing.h trains.

Tensor forward_of(const Answer& answer, lab::VersionStore& store, int microbatch) {
  set_case(fmt::format("weights_for_forward of micro-batch {}", microbatch));
  return answer.weights_for_forward(store, microbatch);
}
Tensor backward_of(const Answer& answer, lab::VersionStore& store, int microbatch) {
  set_case(fmt::format("weights_for_backward of micro-batch {}", microbatch));
  return answer.weights_for_backward(store, microbatch);
}
void update_of(const Answer& answer, lab::VersionStore& store, const Tensor& gradient, double rate) {
  set_case(fmt::format("the update after version {}", store.versions.empty() ? 0 : store.versions.rbegin()->first));
  answer.update(store, gradient, rate);
}

Tensor weights_of(float value) { return Tensor::full({2}, value); }
Tensor gradient_of(float value) { return Tensor::full({2}, value); }
constexpr double kRate = 0.5;

lab::VersionStore new_store() { return {.versions = {{0, weights_of(8)}}}; }

std::string numbers(const Tensor& tensor) {
  return tensor.defined() ? fmt::format("{}", fmt::join(tensor.to_vector<float>(), ", ")) : "an undefined tensor";
}

void require_weights(const Tensor& got, float value, const std::string& what, const char* look_at) {
  if (numbers(got) != numbers(weights_of(value))) {
    throw Failed(fmt::format("{}: {}", what, numbers(weights_of(value))), numbers(got), look_at);
  }
}

void forward_uses_the_newest(const Answer& answer) {
  lab::VersionStore store = new_store();
  require_weights(forward_of(answer, store, 0), 8, "the forward of micro-batch 0 with the first weights", kVersions);
  update_of(answer, store, gradient_of(2), kRate);
  require_weights(forward_of(answer, store, 1), 7,
                  "the forward of micro-batch 1, after update 0, with the newest weights", kVersions);
}

void backward_uses_its_forward(const Answer& answer) {
  lab::VersionStore store = new_store();
  forward_of(answer, store, 0);
  forward_of(answer, store, 1);
  require_weights(backward_of(answer, store, 0), 8, "the backward of micro-batch 0", kVersions);
  update_of(answer, store, gradient_of(2), kRate);
  forward_of(answer, store, 2);
  require_weights(backward_of(answer, store, 1), 8, "the backward of micro-batch 1, whose forward came before update 0",
                  kVersions);
  update_of(answer, store, gradient_of(2), kRate);
  require_weights(backward_of(answer, store, 2), 7,
                  "the backward of micro-batch 2, whose forward came between updates 0 and 1", kVersions);
}

void update_leaves_older_versions(const Answer& answer) {
  lab::VersionStore store = new_store();
  const Tensor in_use = forward_of(answer, store, 0);
  const std::string before = numbers(in_use);
  update_of(answer, store, gradient_of(2), kRate);
  if (numbers(in_use) != before) {
    throw Failed("the weights in use by micro-batch 0 to keep their values during an update: " + before,
                 numbers(in_use), std::string(kVersions) + ": a version is storage");
  }
}

void update_continues_from_the_newest(const Answer& answer) {
  lab::VersionStore store = new_store();
  for (int i = 0; i < 3; ++i) {
    forward_of(answer, store, i);
  }
  backward_of(answer, store, 0);
  update_of(answer, store, gradient_of(2), kRate);
  backward_of(answer, store, 1);
  update_of(answer, store, gradient_of(4), kRate);
  require_weights(forward_of(answer, store, 3), 5,
                  "the weights after two updates, by 0.5 times 2 and by 0.5 times 4, of the first weights 8",
                  kVersions);
}

void trains_as_the_rule_says(const Answer& answer) {
  const int p = varied("lab 4 ranks", 4, 6);
  for (const int batch : {1, 2}) {
    require_equal_to_oracle(answer, {.ranks = p, .microbatches = 4 * p, .batch = batch}, kVersions);
  }
}

/// Calls see(kept, state, when) after each call of the store: the versions that it keeps, and those that it should.
template <class See>
void for_each_state(const Answer& answer, const See& see) {
  for (const int batch : {1, 2}) {
    const StashedRun run{.ranks = 4, .microbatches = 12, .batch = batch};
    train_stashed(answer, run, [&](const StoreState& state) {
      std::set<int> kept;
      for (const auto& [version, weights] : state.store.versions) {
        kept.insert(version);
      }
      see(kept, state, fmt::format("{} ({})", state.when, to_string(run)));
    });
  }
}

void require_subset(const std::set<int>& part, const std::set<int>& whole, const StoreState& state,
                    const std::set<int>& kept, const std::string& when) {
  if (!std::includes(whole.begin(), whole.end(), part.begin(), part.end())) {
    throw Failed(
        fmt::format("after {}: {}", when, state.reasons),
        kept.empty() ? "no version" : fmt::format("version{} {}", kept.size() == 1 ? "" : "s", fmt::join(kept, ", ")),
        kStore);
  }
}

void keeps_what_is_needed(const Answer& answer) {
  for_each_state(answer, [](const auto& kept, const StoreState& state, const std::string& when) {
    require_subset(state.needed, kept, state, kept, when);
  });
}

void keeps_nothing_else(const Answer& answer) {
  for_each_state(answer, [](const auto& kept, const StoreState& state, const std::string& when) {
    require_subset(kept, state.needed, state, kept, when);
  });
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const char* const kLegal = "1F1B: the schedule is legal, also with few micro-batches";
  const char* const kWithinLimits = "limits: no rank holds more than its limit";
  const char* const kNoDeadlock = "limits: no deadlock";
  const auto check = [&](void (*body)(const Answer&)) { return [answer, body] { body(answer); }; };
  return {
      {kLegal, 10, check(legal_without_limits), kOrder},
      {"1F1B: rank r holds at most min(m, p - r) micro-batches", 10, check(memory_of_1f1b), kOrder, {kLegal}},
      {"1F1B: the step takes 3 (m + p - 1) units", 10, check(time_of_1f1b), kOrder, {kLegal}},
      {"1F1B: backwards run in the order of the micro-batches", 5, check(backwards_in_order), kOrder, {kLegal}},
      {kWithinLimits, 10, check(keeps_to_the_limits), kLimits},
      {kNoDeadlock, 10, check(no_deadlock), kLimits, {kWithinLimits}},
      {"limits: the step is no longer than they make necessary",
       5,
       check(no_longer_than_necessary),
       kShortest,
       {kWithinLimits, kNoDeadlock}},
      {"store: a forward uses the newest weights", 5, check(forward_uses_the_newest), kStore},
      {"store: a backward uses the weights of its forward", 10, check(backward_uses_its_forward), kStore},
      {"store: an update leaves the weights in use alone", 5, check(update_leaves_older_versions), kStore},
      {"store: an update continues from the newest weights", 5, check(update_continues_from_the_newest), kStore},
      {"store: training equals the rule of stashing, bit for bit", 5, check(trains_as_the_rule_says), kStore},
      {"store: versions are kept while a micro-batch needs them", 5, check(keeps_what_is_needed), kStore},
      {"store: versions are freed when none needs them", 5, check(keeps_nothing_else), kStore},
  };
}

}  // namespace stagecoach::labs::lab4
