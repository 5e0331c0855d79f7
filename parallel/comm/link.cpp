#include "parallel/comm/link.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/parse.h"

namespace stagecoach {
namespace {

constexpr std::array<std::pair<const char*, Link>, 4> kLinks{{
    {"none", {0, 0}},
    {"nvlink4", {2e-6, 450e9}},
    {"pcie4", {5e-6, 32e9}},
    {"ethernet100", {20e-6, 12.5e9}},
}};

using Units = std::array<std::pair<std::string_view, double>, 7>;
constexpr Units kTimes{{{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr Units kRates{
    {{"", 1}, {"B/s", 1}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}}};

constexpr double kMaxLatency = 3600;  // seconds
constexpr double kMinRate = 1;        // bytes per second
constexpr double kMaxRate = 1e18;

/// Returns 20e-6 for "20us" with the units of time; nullopt unless the text is a finite, non-negative number with a
/// known unit.
std::optional<double> quantity(std::string_view text, const Units& units) {
  double number = 0;
  const auto [end, error] = parse_number(text, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) {
    return std::nullopt;
  }
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : units) {
    if (name == unit) {
      return number * factor;
    }
  }
  return std::nullopt;
}

/// Returns the number of rounds in which a message reaches all of `ranks` if every rank that has it passes it on.
double rounds(int ranks) { return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks) - 1U)); }

}  // namespace

const std::vector<std::string>& link_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, link] : kLinks) {
      all.emplace_back(name);
    }
    return all;
  }();
  return names;
}

Link link_from_text(const std::string& text) {
  for (const auto& [name, link] : kLinks) {
    if (text == name) {
      return link;
    }
  }
  const std::size_t comma = text.find(',');
  if (comma != std::string::npos) {
    const auto latency = quantity(std::string_view(text).substr(0, comma), kTimes);
    const auto rate = quantity(std::string_view(text).substr(comma + 1), kRates);
    if (latency && rate && *latency <= kMaxLatency && *rate >= kMinRate && *rate <= kMaxRate) {
      return {*latency, *rate};
    }
  }
  throw UsageError(fmt::format(
      "'{}' is not a link: expected {}, or LATENCY,BANDWIDTH such as 20us,12.5GB/s (or 2e-5,12.5e9 in seconds and "
      "bytes per second), with a latency of at most {} s and a bandwidth from {} to {} bytes per second",
      text, fmt::join(link_names(), ", "), kMaxLatency, kMinRate, kMaxRate));
}

double ring_all_reduce_seconds(const Link& link, int ranks, double bytes) {
  return 2 * ring_reduce_scatter_seconds(link, ranks, bytes);
}

double ring_all_gather_seconds(const Link& link, int ranks, double bytes) { return (ranks - 1) * link.seconds(bytes); }

double ring_reduce_scatter_seconds(const Link& link, int ranks, double bytes) {
  return (ranks - 1) * link.seconds(bytes / ranks);
}

double tree_broadcast_seconds(const Link& link, int ranks, double bytes) { return rounds(ranks) * link.seconds(bytes); }

double root_reduce_seconds(const Link& link, int ranks, double bytes) { return (ranks - 1) * link.seconds(bytes); }

}  // namespace stagecoach
