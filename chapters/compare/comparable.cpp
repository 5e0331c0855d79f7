#include "chapters/compare/comparable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "chapters/compare/median.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr double kPicturesTolerance = 0.02;

/// The same text, or names of one folder such as "data" and "./data/".
bool is_same_data(const std::string& a, const std::string& b) {
  std::error_code not_there;
  return a == b || (fs::path(a) / "").lexically_normal() == (fs::path(b) / "").lexically_normal() ||
         fs::equivalent(a, b, not_there);
}

/// How many pictures an epoch takes. None if the log does not tell, or rounds its numbers too much.
std::optional<double> pictures_of(const RunRecord& run) {
  std::vector<double> counts;
  for (const EpochRecord& e : run.epochs) {
    const double speed = e.images_per_second.value_or(0);
    const double rounding = run.rounded ? 0.005 / e.seconds + 0.5 / speed : 0;  // 1.83s, 27310 img/s
    if (speed * e.seconds > 0 && rounding < kPicturesTolerance / 2) {
      counts.push_back(std::round(speed * e.seconds));
    }
  }
  return median(counts);
}

/// Looks at settings of which every value gives other data or another training.
class Look {
 public:
  Look(const RunRecord& run, const RunRecord& baseline) : run_(run), baseline_(baseline) {}

  void at_data() {
    const auto here = run_.setting("data");
    const auto there = baseline_.setting("data");
    const std::size_t before = findings_.differences.size();
    if (here && there && !is_same_data(*here, *there)) {
      differs("data", *there, *here, "train both on the same --data");
    }
    at_setting("smoke", "run both with --smoke, or none");
    at_setting("image-size", "run both with the same --image-size");
    at_setting("augment", "run both with --augment, or none");
    if (findings_.differences.size() == before) {
      at_pictures(here && there);
    }
  }

  void at_setting(const std::string& name, const std::string& advice) {
    const auto here = run_.setting(name);
    const auto there = baseline_.setting(name);
    if (here && there && *here != *there) {
      differs(name, *there, *here, advice);
    }
  }

  void at_batch_size() {
    at_setting("batch-size", "run both with the same --batch-size");
    if (!run_.setting("batch-size") || !baseline_.setting("batch-size")) {
      findings_.remarks.emplace_back("the batch size is not known of both, so see yourself that it is the same");
    }
  }

  void at_epochs() {
    if (epochs_of(run_) != epochs_of(baseline_)) {
      differs("finished epochs", epochs_of(baseline_), epochs_of(run_), "train both for the same --epochs");
    }
  }

  void at_clock() {
    if (clock_of(run_) != clock_of(baseline_) || clock_of(run_) == "mixed") {
      differs("clock", clock_of(baseline_), clock_of(run_),
              "times of a wall clock and of a virtual one are not the same thing, so run both with the same --clock");
    }
  }

  /// Another model is no refusal: to see what a larger one costs, one compares it with the smaller.
  void at_model() {
    const auto here = run_.setting("model");
    const auto there = baseline_.setting("model");
    if (here && there && *here != *there) {
      findings_.remarks.push_back(
          fmt::format("model {} there, {} here: the speed-up is one of models too", *there, *here));
    }
  }

  Findings findings() const { return findings_; }

 private:
  void differs(const std::string& what, const std::string& there, const std::string& here, const std::string& advice) {
    findings_.differences.push_back(fmt::format("{} {} there, {} here; {}", what, there, here, advice));
  }

  /// Data under the same name may have changed, and a log without settings names none; their size tells.
  void at_pictures(bool data_is_known) {
    const auto here = pictures_of(run_);
    const auto there = pictures_of(baseline_);
    if (here && there && std::abs(*here - *there) > kPicturesTolerance * *there) {
      differs("pictures an epoch:", fmt::format("{:.0f}", *there), fmt::format("{:.0f}", *here),
              "train both on the same data");
    } else if (!data_is_known && here && there) {
      findings_.remarks.push_back(
          fmt::format("the data are not known of both; compared by pictures an epoch, {:.0f} there and {:.0f} here, "
                      "which is within {:.0f}%",
                      *there, *here, 100 * kPicturesTolerance));
    } else if (!data_is_known) {
      findings_.remarks.emplace_back("the data are not known of both, so see yourself that they are the same");
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
  const bool whole = (first == 0 || first == 1) && last - first + 1 == count;  // some count from 0
  return whole ? std::to_string(count) : fmt::format("{} ({} to {})", count, first, last);
}

Findings look_for_differences(const RunRecord& run, const RunRecord& baseline) {
  Look look(run, baseline);
  look.at_data();
  look.at_batch_size();
  look.at_epochs();
  look.at_clock();
  look.at_model();
  return look.findings();
}

}  // namespace stagecoach
