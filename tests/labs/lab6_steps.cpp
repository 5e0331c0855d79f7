#include "tests/labs/lab6_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace stagecoach::labs::lab6 {
namespace {

constexpr int kStampsPerStep = 100;
constexpr const char* kComplete = "chapters/06_ddp/lab/reducer.h: when a bucket is complete, and when it is summed";
constexpr const char* kStillMissing =
    "is a parameter that is known to be unused still missing? chapters/06_ddp/lab/reducer.h: when a bucket is complete";
constexpr const char* kMarks =
    "chapters/06_ddp/lab/reducer.h: what is in a bucket, and when finish_step returns an undefined Tensor";

/// Returns the gradient of a parameter on a rank. Its numbers are such that sums in another order differ in their last
/// bits.
std::vector<float> gradient_of(int rank, std::size_t step, std::size_t parameter) {
  std::vector<float> gradient;
  for (std::int64_t j = 0; j < sizes()[parameter]; ++j) {
    const auto seed =
        static_cast<float>((rank + 1) * 31 + static_cast<int>(step) * 17 + static_cast<int>(parameter) * 7);
    gradient.push_back((seed + static_cast<float>(j)) / (rank == 1 ? -3.0F : 7.0F));
  }
  return gradient;
}

bool uses(const RankStep& step, std::size_t parameter) {
  return std::find(step.order.begin(), step.order.end(), parameter) != step.order.end();
}

/// Returns the sum over the ranks that use the parameter; empty if none does.
std::vector<float> sum_of(const Step& step, std::size_t number, std::size_t parameter) {
  std::vector<float> sum;
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    if (!uses(step[rank], parameter)) {
      continue;
    }
    const std::vector<float> gradient = gradient_of(static_cast<int>(rank), number, parameter);
    sum.resize(gradient.size());
    std::transform(sum.begin(), sum.end(), gradient.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::string numbers(const std::vector<float>& values) {
  return values.empty() ? "an undefined tensor" : fmt::format("{:.7g}", fmt::join(values, ", "));
}

/// Returns how many gradients a rank has given when it sums each bucket: [buckets].
std::vector<int> launches_of(const RankStep& step) {
  std::vector<int> launches;
  int when = 0;
  for (const Parameters& bucket : layout()) {
    for (const std::size_t parameter : bucket) {
      const auto found = std::find(step.order.begin(), step.order.end(), parameter);
      const bool is_used = found != step.order.end();
      when = std::max(when, is_used ? static_cast<int>(found - step.order.begin()) + 1 : 0);
    }
    launches.push_back(when);
  }
  return launches;
}

bool has_unused(const Step& step) {
  return std::any_of(step.begin(), step.end(), [](const RankStep& rank) { return !rank.unused.empty(); });
}

/// Returns a line for each step: which gradients come on which rank.
std::string gradients_of(const std::vector<Step>& steps) {
  std::string text;
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const std::string in_step = steps.size() == 1 ? "" : fmt::format(" in step {}", number);
    text += fmt::format("gradients{}, in their order: {}\n", in_step, to_string(steps[number]));
  }
  return text;
}

/// Runs the steps on one rank.
std::vector<Sums> run_rank(const Answer& answer, const std::vector<Step>& steps, Communicator& comm,
                           Collectives& collectives) {
  const int rank = comm.rank();
  lab::Reducer reducer{.layout = layout(), .sizes = sizes()};
  std::vector<Sums> results;
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const RankStep& step = steps[number][static_cast<std::size_t>(rank)];
    if (rank == 0) {
      set_case(fmt::format("step {}, with the gradients of {}", number, to_string(steps[number])));
    }
    int stamp = static_cast<int>(number) * kStampsPerStep;
    collectives.stamp(rank, stamp);
    answer.start_step(reducer, step.unused, comm);
    for (const std::size_t parameter : step.order) {
      collectives.stamp(rank, ++stamp);
      const Tensor gradient = Tensor::from(gradient_of(rank, number, parameter), {sizes()[parameter]}, comm.device());
      answer.gradient_ready(reducer, parameter, gradient, comm);
    }
    collectives.stamp(rank, stamp + 1);  // too late for all buckets
    Sums& sums = results.emplace_back();
    for (const Tensor& sum : answer.finish_step(reducer, comm)) {
      sums.push_back(sum.defined() ? sum.to_vector<float>() : std::vector<float>());
    }
  }
  return results;
}

}  // namespace

const std::vector<std::int64_t>& sizes() {
  static const std::vector<std::int64_t> numbers{5, 20, 3, 9, 30, 4, 12};
  return numbers;
}

const lab::BucketLayout& layout() {
  static const lab::BucketLayout buckets{{6, 5}, {4}, {3, 2, 1}, {0}};
  return buckets;
}

std::int64_t count_of_bucket(std::size_t bucket) {
  std::int64_t count = 0;
  for (const std::size_t parameter : layout()[bucket]) {
    count += sizes()[parameter] + 1;
  }
  return count;
}

Step in_reverse(int ranks) {
  Parameters order;
  for (std::size_t parameter = sizes().size(); parameter-- > 0;) {
    order.push_back(parameter);
  }
  return Step(static_cast<std::size_t>(ranks), RankStep{order});
}

Step in_different_orders(int ranks) {
  Step step = in_reverse(ranks);
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    Parameters& order = step[rank].order;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(2 * rank % order.size()), order.end());
  }
  return step;
}

Step without(Step step, int rank, std::size_t parameter) {
  RankStep& mine = step[static_cast<std::size_t>(rank)];
  std::erase(mine.order, parameter);
  mine.unused.push_back(parameter);
  return step;
}

std::string to_string(const Step& step) {
  std::string text;
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    fmt::format_to(std::back_inserter(text), "{}rank {}: {}", rank == 0 ? "" : "; ", rank,
                   fmt::join(step[rank].order, ", "));
    if (!step[rank].unused.empty()) {
      fmt::format_to(std::back_inserter(text), ", without {}", fmt::join(step[rank].unused, ", "));
    }
  }
  return text;
}

Results run_steps(const Answer& answer, const std::vector<Step>& steps, Collectives& collectives) {
  const std::size_t ranks = steps.front().size();
  Results results(ranks);
  try {
    run_watched_collectives(static_cast<int>(ranks), collectives, [&](Communicator& comm) {
      results[static_cast<std::size_t>(comm.rank())] = run_rank(answer, steps, comm, collectives);
    });
  } catch (const Failed& failed) {
    const auto& [expected, got, look_at, drawing, remark] = failed.explanation();
    const bool waits = got.ends_with("waits forever") && std::any_of(steps.begin(), steps.end(), has_unused);
    throw Failed(expected, got, waits ? kStillMissing : look_at, drawing + gradients_of(steps));
  }
  return results;
}

Collectives::Texts bucket_texts() {
  const auto name = [](std::int64_t count) {
    for (std::size_t bucket = 0; bucket < layout().size(); ++bucket) {
      if (count_of_bucket(bucket) == count) {
        return fmt::format("bucket {}", bucket);
      }
    }
    return fmt::format("{} numbers", count);
  };
  return {name, "docs/reference/buckets.md, \"The rules\": buckets leave in their order",
          "scripts/lab.sh hint 6 2 2: when a gradient completes a bucket, how many buckets can be summed at once?"};
}

void require_sums(const Results& results, const std::vector<Step>& steps, const std::string& look_at) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    for (std::size_t number = 0; number < steps.size(); ++number) {
      const Sums& sums = results[rank][number];
      if (sums.size() != sizes().size()) {
        throw Failed(fmt::format("{} sums from finish_step on rank {}", sizes().size(), rank),
                     std::to_string(sums.size()), look_at);
      }
      for (std::size_t parameter = 0; parameter < sums.size(); ++parameter) {
        if (const auto expected = sum_of(steps[number], number, parameter); !same_bits(sums[parameter], expected)) {
          const bool is_mark_wrong = expected.empty() || sums[parameter].empty();
          throw Failed(fmt::format("the sum of parameter {} on rank {} in step {}: {}", parameter, rank, number,
                                   numbers(expected)),
                       numbers(sums[parameter]), is_mark_wrong ? kMarks : look_at,
                       "gradients, in their order: " + to_string(steps[number]));
        }
      }
    }
  }
}

void require_calls_in_each_step(const Collectives& collectives, const std::vector<Step>& steps,
                                const std::string& look_at) {
  for (std::size_t rank = 0; rank < steps.front().size(); ++rank) {
    std::vector<std::string> calls(steps.size());
    std::vector<std::size_t> counts(steps.size());
    for (const CommunicatorCall& call : collectives.calls_of(static_cast<int>(rank))) {
      const auto number = static_cast<std::size_t>(call.stamp / kStampsPerStep);
      calls[number] += fmt::format(" {}({})", call.operation, bucket_texts().name(call.count));
      ++counts[number];
    }
    for (std::size_t number = 0; number < steps.size(); ++number) {
      if (counts[number] != layout().size()) {
        std::string drawing;
        for (std::size_t i = 0; i < steps.size(); ++i) {
          drawing += fmt::format("rank {} in step {}: {}\n", rank, i, counts[i] == 0 ? "no call" : calls[i].substr(1));
        }
        throw Failed(fmt::format("{} calls of all_reduce on rank {} in step {}", layout().size(), rank, number),
                     counts[number] == 0 ? "none" : std::to_string(counts[number]), look_at, drawing);
      }
    }
  }
}

std::string gradients(int count) { return fmt::format("{} gradient{}", count, count == 1 ? "" : "s"); }

void require_launches(const Collectives& collectives, const std::vector<Step>& steps, const std::string& look_at) {
  for (std::size_t rank = 0; rank < steps.front().size(); ++rank) {
    const auto calls = collectives.calls_of(static_cast<int>(rank));
    std::size_t next = 0;
    for (std::size_t number = 0; number < steps.size(); ++number) {
      const std::vector<int> launches = launches_of(steps[number][rank]);
      for (std::size_t bucket = 0; bucket < launches.size(); ++bucket, ++next) {
        const bool at_start = launches[bucket] == 0;
        const std::string when_expected = at_start ? "in start_step, as no gradient is to come"
                                                   : fmt::format("when it has {}", gradients(launches[bucket]));
        const std::string expected =
            fmt::format("rank {} to sum bucket {} of step {} {}", rank, bucket, number, when_expected);
        const std::string where = at_start ? kComplete : look_at;
        if (next >= calls.size() || calls[next].count != count_of_bucket(bucket)) {
          throw Failed(expected, next < calls.size() ? "another call" : "no call", where, collectives.drawn());
        }
        if (const int when = calls[next].stamp - static_cast<int>(number) * kStampsPerStep; when != launches[bucket]) {
          const bool is_late = when > static_cast<int>(steps[number][rank].order.size());
          throw Failed(expected,
                       is_late     ? "it is summed in finish_step"
                       : when == 0 ? "it is summed in start_step"
                                   : fmt::format("it is summed when it has {}", gradients(when)),
                       where, "gradients, in their order: " + to_string(steps[number]));
        }
      }
    }
  }
}

}  // namespace stagecoach::labs::lab6
