#include "parallel/training/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/median.h"
#include "core/base/units.h"

namespace stagecoach {
namespace {

template <class Number>
double median_of(const std::vector<EpochResult>& epochs, const Number& number) {
  std::vector<double> values(epochs.size());
  std::transform(epochs.begin(), epochs.end(), values.begin(), number);
  return *median(std::move(values));
}

std::string memory_text(const EpochResult& epoch) {
  std::vector<double> mib(epoch.peak_bytes.size());
  std::transform(epoch.peak_bytes.begin(), epoch.peak_bytes.end(), mib.begin(),
                 [](std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; });
  return fmt::format("{:.1f} MiB at most", fmt::join(mib, ", "));
}

std::string link_text(const std::vector<LinkBytes>& links, const char* place) {
  const auto busiest =
      std::max_element(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return busiest != links.end() ? fmt::format("{0:.3f} MiB per step at most, from {3} {1} to {3} {2}",
                                              busiest->bytes / kMiB, busiest->from, busiest->to, place)
                                : "none: nothing is sent";
}

std::string staleness_text(const std::vector<int>& delays) {
  const bool is_late = std::any_of(delays.begin(), delays.end(), [](int delay) { return delay > 0; });
  return is_late ? fmt::format("{} updates at most, stage by stage", fmt::join(delays, ", "))
                 : "0 updates: training is synchronous";
}

}  // namespace

std::string summary(const std::vector<EpochResult>& epochs, const char* place) {
  const bool has_more = epochs.size() > 1;
  const std::vector<EpochResult> shown(epochs.begin() + (has_more ? 1 : 0), epochs.end());
  const EpochResult& last = shown.back();
  const std::string of = shown.size() > 1 ? fmt::format("medians of epochs {} to {}", shown.front().epoch, last.epoch)
                                          : fmt::format("epoch {}", last.epoch);
  const double step = median_of(shown, [](const EpochResult& e) { return e.seconds / static_cast<double>(e.steps); });
  const double idle = median_of(shown, [](const EpochResult& e) { return e.idle; });
  const std::string memory = fmt::format("memory per {}", place);
  const std::size_t width = memory.size() + 2;
  std::string table = fmt::format("Summary, {}\n", of);
  const auto row = [&](const std::string& name, const std::string& value) {
    table += fmt::format("  {:<{}}{}\n", name, width, value);
  };
  row("step time", fmt::format("{:.3f} ms, {} clock", 1e3 * step, last.clock));
  row("idle share", fmt::format("{:.1f}% (ideal {:.1f}%)", 100 * idle, 100 * last.prediction.ideal_idle));
  row(memory, memory_text(last));
  row("bytes per link", link_text(last.links, place));
  row("staleness", staleness_text(last.prediction.delays));
  return table;
}

}  // namespace stagecoach
