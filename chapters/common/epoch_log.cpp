#include "chapters/common/epoch_log.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>

namespace stagecoach {

std::string epoch_line(const EpochResult& r) {
  return fmt::format(
      "Epoch: {}, Loss: {:.2f}, acc: {:.2f}, time cost: {:.2f}s, test acc: {:.2f}, {:.0f} img/s, idle {:.1f}% (ideal "
      "{:.1f}%){}",
      r.epoch, r.loss, r.accuracy, r.seconds, r.test_accuracy, r.images_per_second, 100 * r.idle,
      100 * r.expected.ideal_idle, r.clock == "virtual" ? ", virtual" : "");
}

std::string epoch_json(const EpochResult& r) {
  nlohmann::ordered_json json{{"event", "epoch"},
                              {"epoch", r.epoch},
                              {"loss", r.loss},
                              {"acc", r.accuracy},
                              {"test_acc", r.test_accuracy},
                              {"seconds", r.seconds},
                              {"clock", r.clock},
                              {"images_per_second", r.images_per_second},
                              {"idle", r.idle},
                              {"ideal_idle", r.expected.ideal_idle},
                              {"peak_bytes", r.peak_bytes}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) {
      json[key] = *value;
    }
  };
  add("predicted_idle", r.expected.predicted_idle);
  add("predicted_seconds", r.expected.predicted_seconds);
  add("replayed_seconds", r.expected.replayed_seconds);
  add("busiest_seconds", r.expected.busiest_seconds);
  add("overlap", r.expected.overlap);
  if (!r.expected.versions.empty()) {
    json["versions"] = r.expected.versions;
  }
  return json.dump();
}

std::int64_t epoch_of_json(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool is_epoch = json.is_object() && json.contains("event") && json["event"] == "epoch" &&
                        json.contains("epoch") && json["epoch"].is_number_integer();
  return is_epoch ? json["epoch"].get<std::int64_t>() : 0;
}

ProgressBar::ProgressBar(std::int64_t epoch, std::int64_t steps, bool shows)
    : epoch_(epoch), steps_(steps), on_terminal_(shows && isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (on_terminal_) {
    fmt::print(stderr, "\r\033[K");
  }
}

void ProgressBar::show(std::int64_t step, std::optional<double> loss) {
  const int percent = static_cast<int>(100 * step / steps_);
  if (!on_terminal_ || percent == shown_percent_) {
    return;
  }
  shown_percent_ = percent;
  constexpr int kWidth = 30;  // a line of 80 columns holds all
  const int full = kWidth * percent / 100;
  fmt::print(stderr, "\r\033[KEpoch {} [{:=<{}}{: <{}}] {:3d}%  step {}/{}{}", epoch_, "", full, "", kWidth - full,
             percent, step, steps_, loss ? fmt::format("  loss {:.3f}", *loss) : "");
}

}  // namespace stagecoach
