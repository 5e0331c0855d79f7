#include "chapters/calibrate/fit.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

namespace stagecoach {
namespace {

constexpr std::size_t kKinds = std::tuple_size_v<DeviceModel::Rates>;  // that compute; the products come first
constexpr auto kProducts = static_cast<std::size_t>(CostKind::elementwise);
constexpr auto kConvolution = static_cast<std::size_t>(CostKind::convolution);
constexpr auto kWide = static_cast<std::size_t>(CostKind::wide_convolution);

/// The logarithms of what is fitted. A class is a kind of float32, or a product with TF32.
struct Parameters {
  double launch = std::log(1e-6);                  // seconds
  double bandwidth = std::log(1e11);               // bytes per second
  std::array<double, kKinds + kProducts> share{};  // of the rate in that of the best product
  std::array<double, kKinds + kProducts> start{};  // seconds that `half` operations take

  std::vector<double*> all() {
    std::vector<double*> pointers{&launch, &bandwidth};
    for (std::size_t i = 0; i < share.size(); ++i) {
      pointers.insert(pointers.end(), {&share[i], &start[i]});
    }
    return pointers;
  }
};

DeviceModel model_of(const Parameters& p, const Timings& timings, DeviceModel device, bool tf32) {
  device.launch_seconds = std::exp(p.launch);
  device.bytes_per_second = std::exp(p.bandwidth);
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const bool rounds = tf32 && kind < kProducts;
    const std::size_t fitted_kind = kind == kWide && device.backend == DeviceType::cuda ? kConvolution : kind;
    const auto rate = [&](std::size_t i, double best) -> DeviceModel::Rate {
      const double flops_per_second = best * std::exp(p.share[i]);
      return {flops_per_second, flops_per_second * std::exp(p.start[i])};
    };
    device.float32[kind] =
        rounds ? rate(kKinds + fitted_kind, timings.best_tf32) : rate(fitted_kind, timings.best_float32);
    device.float64[kind] = rate(fitted_kind, timings.best_float64);
  }
  return device;
}

double squared(double x) { return x * x; }

/// Returns the loss of an error: quadratic near 0 and linear beyond, so that a call that no formula explains does not
/// decide.
double loss(double error) {
  constexpr double kScale = 0.3;
  return 2 * squared(kScale) * (std::sqrt(1 + squared(error / kScale)) - 1);
}

/// Returns how far values are from their mean. Wide convolutions are not a part of it: they compute with the register
/// tile of matrix products, so they should be near these.
double spread(const std::array<double, kKinds + kProducts>& values, bool any_tf32) {
  std::vector<double> used;
  for (std::size_t i = 0; i < (any_tf32 ? values.size() : kKinds); ++i) {
    if (i != kWide && i != kKinds + kWide) {
      used.push_back(values[i]);
    }
  }
  const double mean = std::accumulate(used.begin(), used.end(), 0.0) / static_cast<double>(used.size());
  return std::accumulate(used.begin(), used.end(), squared(values[kWide] - values[0]),
                         [&](double sum, double x) { return sum + squared(x - mean); });
}

/// Returns how much each call counts, 1 on average: half of that is the same for all, half is its share of the time of
/// all calls of its model, as steps should be right too.
std::vector<double> weights_of(const Timings& timings) {
  std::map<std::string, std::vector<double>> of_model;
  for (const Timing& timing : timings.calls) {
    of_model[timing.model].push_back(timing.seconds);
  }
  std::vector<double> weights;
  for (const Timing& timing : timings.calls) {
    const std::vector<double>& all = of_model[timing.model];
    const double mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
    weights.push_back(0.5 + 0.5 * timing.seconds / mean);
  }
  return weights;
}

/// Returns what is minimised: the errors of the calls, and how much the classes differ.
double objective(const Parameters& p, const Timings& timings, const std::vector<double>& weights,
                 const DeviceModel& device) {
  constexpr double kLikeness = 0.2;
  const bool any_tf32 = timings.best_tf32 > 0;
  const DeviceModel plain = model_of(p, timings, device, false);
  const DeviceModel rounding = model_of(p, timings, device, any_tf32);
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Timing& timing = timings.calls[i];
    sum += weights[i] * loss(std::log(ratio(timing.tf32 ? rounding : plain, timing)));
  }
  return sum + kLikeness * (spread(p.share, any_tf32) + spread(p.start, any_tf32));
}

/// Lowers `value` by changing one parameter after the other, in smaller and smaller steps.
void minimise(const std::vector<double*>& parameters, const std::function<double()>& value) {
  double best = value();
  for (double step = 1; step > 1e-4; step /= 2) {
    for (bool has_improved = true; has_improved;) {
      has_improved = false;
      for (double* parameter : parameters) {
        for (const double change : {step, -step}) {
          *parameter += change;
          const double changed = value();
          if (changed < best - 1e-9) {
            best = changed;
            has_improved = true;
          } else {
            *parameter -= change;
          }
        }
      }
    }
  }
}

}  // namespace

double ratio(const DeviceModel& device, const Timing& timing) {
  return static_cast<double>(device.picoseconds(timing.cost)) * 1e-12 / timing.seconds;
}

DeviceModel fitted(const Timings& timings, DeviceModel device, bool tf32) {
  Parameters p;
  p.start.fill(std::log(1e-6));
  const std::vector<double> weights = weights_of(timings);
  minimise(p.all(), [&] { return objective(p, timings, weights, device); });
  return model_of(p, timings, device, tf32);
}

DeviceModel rounded(DeviceModel device) {
  const auto round = [](double& x) { x = std::stod(fmt::format("{:.2e}", x)); };
  for (DeviceModel::Rates* rates : {&device.float32, &device.float64}) {
    for (DeviceModel::Rate& rate : *rates) {
      round(rate.flops_per_second);
      round(rate.half);
    }
  }
  for (double* number : {&device.bytes_per_second, &device.launch_seconds, &device.host_launch_seconds,
                         &device.host_bytes_per_second, &device.load_bytes_per_second}) {
    round(*number);
  }
  return device;
}

}  // namespace stagecoach
