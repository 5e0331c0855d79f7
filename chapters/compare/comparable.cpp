#include "chapters/compare/comparable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "chapters/compare/median.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr double kImagesTolerance = 0.02;

/// Returns whether both texts are the same or name the same folder, such as "data" and "./data/".
bool is_same_data(const std::string& a, const std::string& b) {
  std::error_code not_there;
  return a == b || (fs::path(a) / "").lexically_normal() == (fs::path(b) / "").lexically_normal() ||
         fs::equivalent(a, b, not_there);
}

/// Returns the number of images in an epoch; nothing if the log does not say, or rounds its numbers too much.
std::optional<double> images_of(const RunRecord& run) {
  std::vector<double> counts;
  for (const EpochRecord& e : run.epochs) {
    const double speed = e.images_per_second.value_or(0);
    const double rounding = run.rounded ? 0.005 / e.seconds + 0.5 / speed : 0;  // of "1.83s, 27310 img/s"
    if (speed * e.seconds > 0 && rounding < kImagesTolerance / 2) {
      counts.push_back(std::round(speed * e.seconds));
    }
  }
  return median(counts);
}

/// Compares the settings that change the data or the training, one by one.
class Check {
 public:
  Check(const RunRecord& run, const RunRecord& baseline) : run_(run), baseline_(baseline) {}

  void data() {
    const auto got = run_.setting("data");
    const auto expected = baseline_.setting("data");
    const std::size_t before = findings_.differences.size();
    if (got && expected && !is_same_data(*got, *expected)) {
      differs("data", *expected, *got, "train both on the same --data");
    }
    setting("smoke", "run both with --smoke or both without");
    setting("image-size", "run both with the same --image-size");
    setting("augment", "run both with --augment or both without");
    if (findings_.differences.size() == before) {
      images(got && expected);
    }
  }

  void setting(const std::string& name, const std::string& advice) {
    const auto got = run_.setting(name);
    const auto expected = baseline_.setting(name);
    if (got && expected && *got != *expected) {
      differs(name, *expected, *got, advice);
    }
  }

  void batch_size() {
    setting("batch-size", "run both with the same --batch-size");
    if (!run_.setting("batch-size") || !baseline_.setting("batch-size")) {
      findings_.remarks.emplace_back("the batch size is not known for both runs; check that it is the same");
    }
  }

  void epochs() {
    if (epochs_of(run_) != epochs_of(baseline_)) {
      differs("finished epochs", epochs_of(baseline_), epochs_of(run_), "train both for the same --epochs");
    }
  }

  void clock() {
    if (clock_of(run_) != clock_of(baseline_) || clock_of(run_) == "mixed") {
      differs("clock", clock_of(baseline_), clock_of(run_),
              "wall-clock and virtual times cannot be compared, so run both with the same --clock");
    }
  }

  /// Allows another model, as this shows what a larger one costs.
  void model() {
    for (const char* name : {"model", "depth", "width", "heads"}) {
      const auto got = run_.setting(name);
      const auto expected = baseline_.setting(name);
      if (got && expected && *got != *expected) {
        findings_.remarks.push_back(
            fmt::format("{} {} instead of {}: the speed-up compares the models too", name, *got, *expected));
        return;
      }
    }
  }

  Findings findings() const { return findings_; }

 private:
  void differs(const std::string& what, const std::string& expected, const std::string& got,
               const std::string& advice) {
    findings_.differences.push_back(fmt::format("{}: expected {}, got {}; {}", what, expected, got, advice));
  }

  /// Compares the number of images, as data of the same name may have changed, and a log without settings does not name
  /// its data.
  void images(bool data_is_known) {
    const auto got = images_of(run_);
    const auto expected = images_of(baseline_);
    if (got && expected && std::abs(*got - *expected) > kImagesTolerance * *expected) {
      differs("images per epoch", fmt::format("{:.0f}", *expected), fmt::format("{:.0f}", *got),
              "train both on the same data");
    } else if (!data_is_known && got && expected) {
      findings_.remarks.push_back(fmt::format(
          "the data is not known for both runs; their images per epoch, {:.0f} and {:.0f}, agree within {:.0f}%",
          *expected, *got, 100 * kImagesTolerance));
    } else if (!data_is_known) {
      findings_.remarks.emplace_back("the data is not known for both runs; check that it is the same");
    }
  }

  const RunRecord& run_;
  const RunRecord& baseline_;
  Findings findings_;
};

}  // namespace

std::string clock_of(const RunRecord& run) {
  const std::string by_setting = run.setting("clock") == "virtual" ? "virtual" : "wall";
  const auto clock = [&](const EpochRecord& epoch) { return epoch.clock.value_or(by_setting); };
  const std::string first = clock(run.epochs.front());
  const bool same = std::all_of(run.epochs.begin(), run.epochs.end(), [&](const auto& e) { return clock(e) == first; });
  return same ? first : "mixed";
}

std::string epochs_of(const RunRecord& run) {
  const std::int64_t first = run.epochs.front().epoch;
  const std::int64_t last = run.epochs.back().epoch;
  const auto count = static_cast<std::int64_t>(run.epochs.size());
  const bool whole = (first == 0 || first == 1) && last - first + 1 == count;  // some programs count from 0
  return whole ? std::to_string(count) : fmt::format("{} ({} to {})", count, first, last);
}

Findings find_differences(const RunRecord& run, const RunRecord& baseline) {
  Check check(run, baseline);
  check.data();
  check.batch_size();
  check.epochs();
  check.clock();
  check.model();
  return check.findings();
}

}  // namespace stagecoach
