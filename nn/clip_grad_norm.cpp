#include "nn/clip_grad_norm.h"

#include <cstdint>
#include <map>

#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

using TensorsOnDevices = std::map<Device, std::vector<Tensor>>;

TensorsOnDevices by_device(const NamedTensors& gradients) {
  TensorsOnDevices on;
  for (const auto& [name, gradient] : gradients) {
    if (gradient.defined()) {
      on[gradient.device()].push_back(gradient);
    }
  }
  return on;
}

/// Returns the sums [n] float64 of tensors of one device, on that device.
Tensor squares_of(const std::vector<Tensor>& tensors) {
  const Device device = tensors.front().device();
  Tensor sums = Tensor::empty({static_cast<std::int64_t>(tensors.size())}, DType::float64, device);
  kernels(device).sums_of_squares(tensors, sums);
  return sums;
}

}  // namespace

std::vector<double> sums_of_squares(const NamedTensors& gradients) {
  std::map<Device, Tensor> computed;  // on all devices, before one of them is waited for
  for (const auto& [device, tensors] : by_device(gradients)) {
    computed.emplace(device, squares_of(tensors));
  }
  std::map<Device, std::vector<double>> sums;
  for (const auto& [device, squares] : computed) {
    const bool has_values = device.type != DeviceType::meta;  // others are planned, and clip nothing
    sums.emplace(device, has_values ? squares.to_vector<double>() : std::vector<double>(squares.numel()));
  }
  std::map<Device, std::size_t> next;
  std::vector<double> all;
  for (const auto& [name, gradient] : gradients) {
    all.push_back(gradient.defined() ? sums.at(gradient.device())[next[gradient.device()]++] : 0);
  }
  return all;
}

void clip_grad_norm(const NamedTensors& parameters, double max_norm, const SumsOfSquares& sums) {
  NamedTensors gradients;
  for (const auto& [name, parameter] : parameters) {
    gradients.emplace_back(name, parameter.grad());
  }
  TensorsOnDevices on = by_device(gradients);
  if (!sums && on.size() == 1) {
    auto& [device, tensors] = *on.begin();
    return kernels(device).clip_to_norm(squares_of(tensors), max_norm, tensors);
  }
  const std::vector<double> squares = sums ? sums(gradients) : sums_of_squares(gradients);
  for (auto& [device, tensors] : on) {
    const Tensor there = Tensor::from(squares, {static_cast<std::int64_t>(squares.size())}, device);
    kernels(device).clip_to_norm(there, max_norm, tensors);
  }
}

}  // namespace stagecoach
