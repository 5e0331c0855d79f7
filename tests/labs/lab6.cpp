#include "tests/labs/lab6.h"

#include <fmt/format.h>

#include <numeric>

#include "tests/labs/class_settings.h"
#include "tests/labs/lab6_steps.h"

namespace stagecoach::labs::lab6 {
namespace {

constexpr const char* kLayout = "chapters/06_ddp/lab/assign_buckets.h: when a bucket is closed";
constexpr const char* kBuckets =
    "chapters/06_ddp/lab/reducer.h: what is summed, in which order, and when; docs/reference/buckets.md, \"The "
    "rules\"";
constexpr const char* kMessage = "chapters/06_ddp/lab/reducer.h: what is in a bucket";
constexpr const char* kSteps = "chapters/06_ddp/lab/reducer.h: which members of Reducer must start_step set again?";
constexpr const char* kFinish = "chapters/06_ddp/lab/reducer.h: what finish_step throws";
constexpr const char* kUnused =
    "chapters/06_ddp/lab/reducer.h: when a bucket is complete; docs/reference/buckets.md, \"What a model may do\"";

int ranks() { return varied("lab 6 ranks", 3, 5); }

// Part 1.

struct Sizes {
  std::vector<std::size_t> bytes;
  std::size_t first_cap;
  std::size_t cap;
};

std::vector<Sizes> layouts() {
  const auto extra = static_cast<std::size_t>(varied("lab 6 bytes", 0, 40));
  return {
      {{40, 40, 40, 40, 40}, 80, 120},                        // caps that are met exactly
      {{400, 36, 200, 8, 96, 12, 44, 60 + extra}, 100, 250},  // in between
      {{1000, 4, 4, 1000, 4}, 100, 200},                      // larger than a bucket
      {{500}, 100, 200},                                      // only one, and too large
      {{16, 16, 16, 900}, 40, 64},                            // the last one is too large for the first bucket
      {{8, 8, 8, 8}, 1000, 10},                               // all in the first
      {{}, 100, 200},                                         // no parameters, no buckets
  };
}

std::string to_string(const Sizes& sizes) {
  return sizes.bytes.empty()
             ? "no parameters"
             : fmt::format("sizes {} with caps {} and {}", fmt::join(sizes.bytes, ", "), sizes.first_cap, sizes.cap);
}

std::string to_string(const lab::BucketLayout& buckets) {
  std::string text;
  for (const auto& bucket : buckets) {
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(bucket, ", "));
  }
  return text.empty() ? "no buckets" : text;
}

std::size_t bytes_of(const std::vector<std::size_t>& bucket, const Sizes& sizes) {
  return std::accumulate(bucket.begin(), bucket.end(), std::size_t{0},
                         [&](std::size_t sum, std::size_t parameter) { return sum + sizes.bytes.at(parameter); });
}

lab::BucketLayout buckets_of(const Answer& answer, const Sizes& sizes) {
  set_case(to_string(sizes));
  return answer.assign_buckets(sizes.bytes, sizes.first_cap, sizes.cap);
}

void every_parameter_once(const Answer& answer) {
  for (const Sizes& sizes : layouts()) {
    const lab::BucketLayout buckets = buckets_of(answer, sizes);
    std::vector<std::size_t> expected(sizes.bytes.size());
    std::iota(expected.rbegin(), expected.rend(), std::size_t{0});
    std::vector<std::size_t> got;
    if (sizes.bytes.empty() && !buckets.empty()) {
      throw Failed("no bucket, for no parameters", fmt::format("{}: {}", buckets.size(), to_string(buckets)), kLayout);
    }
    for (const auto& bucket : buckets) {
      if (bucket.empty()) {
        throw Failed("no empty bucket, for " + to_string(sizes), to_string(buckets), kLayout);
      }
      got.insert(got.end(), bucket.begin(), bucket.end());
    }
    if (got != expected) {
      throw Failed(fmt::format("the parameters {}, for {}", fmt::join(expected, ", "), to_string(sizes)),
                   to_string(buckets), kLayout);
    }
  }
}

void within_the_caps(const Answer& answer) {
  for (const Sizes& sizes : layouts()) {
    const lab::BucketLayout buckets = buckets_of(answer, sizes);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const std::size_t cap = b == 0 ? sizes.first_cap : sizes.cap;
      if (const std::size_t bytes = bytes_of(buckets[b], sizes); buckets[b].size() > 1 && bytes > cap) {
        throw Failed(fmt::format("at most {} bytes in bucket {}, for {}", cap, b, to_string(sizes)),
                     fmt::format("{} bytes: {}", bytes, to_string(buckets)), kLayout);
      }
    }
  }
}

/// No bucket has room for the parameter that begins the next one.
void as_many_as_fit(const Answer& answer) {
  for (const Sizes& sizes : layouts()) {
    const lab::BucketLayout buckets = buckets_of(answer, sizes);
    if (buckets.empty() && !sizes.bytes.empty()) {
      throw Failed("at least one bucket, for " + to_string(sizes), to_string(buckets), kLayout);
    }
    for (std::size_t b = 0; b + 1 < buckets.size(); ++b) {
      const std::size_t cap = b == 0 ? sizes.first_cap : sizes.cap;
      const std::size_t next = buckets[b + 1].empty() ? 0 : sizes.bytes.at(buckets[b + 1].front());
      if (bytes_of(buckets[b], sizes) + next <= cap) {
        throw Failed(
            fmt::format("bucket {} to take the next parameter, of {} bytes, too, for {}", b, next, to_string(sizes)),
            to_string(buckets), kLayout);
      }
    }
  }
}

// Part 2.

/// Runs `steps` and compares the sums. Returns what was called.
void require_step_sums(const Answer& answer, const std::vector<Step>& steps, const char* look_at) {
  Collectives collectives(ranks(), bucket_texts());
  require_sums(run_steps(answer, steps, collectives), steps, look_at);
}

void sums_of_one_order(const Answer& answer) { require_step_sums(answer, {in_reverse(ranks())}, kBuckets); }

void sums_of_different_orders(const Answer& answer) {
  require_step_sums(answer, {in_different_orders(ranks())}, kBuckets);
}

void sums_at_once(const Answer& answer) {
  for (const Step& step : {in_reverse(ranks()), in_different_orders(ranks())}) {
    Collectives collectives(ranks(), bucket_texts());
    run_steps(answer, {step}, collectives);
    require_launches(collectives, {step}, kBuckets);
  }
}

void one_message_per_bucket(const Answer& answer) {
  const Step step = without(in_different_orders(ranks()), 1, 2);
  Collectives collectives(ranks(), bucket_texts());
  run_steps(answer, {step}, collectives);
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto calls = collectives.calls_of(rank);
    std::int64_t numbers = 0;
    std::int64_t expected = 0;
    for (std::size_t bucket = 0; bucket < layout().size(); ++bucket) {
      expected += count_of_bucket(bucket);
    }
    for (const CommunicatorCall& call : calls) {
      numbers += call.count;
    }
    if (calls.size() != layout().size() || numbers != expected) {
      throw Failed(fmt::format("{} calls with {} numbers on rank {}", layout().size(), expected, rank),
                   fmt::format("{} calls with {}", calls.size(), numbers), kMessage, collectives.drawn());
    }
  }
}

/// Returns `step` in which no rank but `user` uses `parameter`.
Step on_rank_only(Step step, int user, std::size_t parameter) {
  for (int rank = 0; rank < ranks(); ++rank) {
    step = rank == user ? step : without(step, rank, parameter);
  }
  return step;
}

void unused_on_some_ranks(const Answer& answer) {
  const int last = ranks() - 1;
  for (const Step& step : {without(in_different_orders(ranks()), 1, 2),                    // in the middle of a bucket
                           without(without(in_reverse(ranks()), 0, 6), 0, 5),              // a whole bucket, the first
                           without(without(in_different_orders(ranks()), last, 0), 1, 4),  // two ranks
                           on_rank_only(in_different_orders(ranks()), 1, 3)}) {            // all ranks but one
    Collectives collectives(ranks(), bucket_texts());
    require_sums(run_steps(answer, {step}, collectives), {step}, kUnused);
    require_launches(collectives, {step}, kUnused);
  }
}

void unused_on_all_ranks(const Answer& answer) {
  Step step = in_different_orders(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    step = without(without(step, rank, 3), rank, 0);
  }
  require_step_sums(answer, {step}, kUnused);
}

void many_steps(const Answer& answer) {
  const Step all = in_different_orders(ranks());
  const std::vector<Step> steps{all, without(all, 1, 4), all, in_reverse(ranks())};
  Collectives collectives(ranks(), bucket_texts());
  const Results results = run_steps(answer, steps, collectives);
  require_calls_in_each_step(collectives, steps, kSteps);
  require_sums(results, steps, kSteps);
}

void missing_gradient(const Answer& answer) {
  constexpr std::size_t kMissing = 2;
  Step step = in_reverse(ranks());
  std::erase(step.back().order, kMissing);  // but not announced
  Collectives collectives(ranks(), bucket_texts());
  const std::string expected =
      fmt::format("an Error of finish_step that names parameter {}, whose gradient never came", kMissing);
  try {
    run_steps(answer, {step}, collectives);
  } catch (const Error& error) {
    if (std::string(error.what()).find(fmt::format("parameter {}", kMissing)) == std::string::npos) {
      throw Failed(expected, error.what(), kFinish);
    }
    return;
  } catch (const Failed& failed) {  // a rank waits for a sum that another one never joins
    throw Failed(expected, failed.explanation().got, kFinish, failed.explanation().drawing);
  }
  throw Failed(expected, "no Error", kFinish, collectives.drawn());
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const char* const kSameBuckets = "reducer: all ranks sum the same buckets, in whatever order gradients come";
  const auto check = [&](void (*body)(const Answer&)) { return [answer, body] { body(answer); }; };
  return {
      {"buckets: every parameter once, from the last to the first", 10, check(every_parameter_once), kLayout},
      {"buckets: none is larger than its cap, except for one parameter alone", 10, check(within_the_caps), kLayout},
      {"buckets: each takes as many parameters as fit", 10, check(as_many_as_fit), kLayout},
      {"reducer: gradients are summed over the ranks", 10, check(sums_of_one_order), kBuckets},
      {kSameBuckets, 15, check(sums_of_different_orders), kBuckets},
      {"reducer: a bucket is summed as soon as it is complete", 10, check(sums_at_once), kBuckets},
      {"reducer: one message per bucket, and no other", 5, check(one_message_per_bucket), kMessage},
      {"reducer: a parameter unused on some ranks counts as zeros", 10, check(unused_on_some_ranks), kUnused},
      {"reducer: a parameter unused on all ranks has no gradient", 10, check(unused_on_all_ranks), kUnused},
      {"reducer: steps follow each other", 5, check(many_steps), kSteps},
      {"reducer: a gradient that never comes is an error, not a wait",
       5,
       check(missing_gradient),
       kFinish,
       {kSameBuckets}},
  };
}

}  // namespace stagecoach::labs::lab6
