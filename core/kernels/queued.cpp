#include "core/kernels/queued.h"

#include <optional>
#include <tuple>
#include <utility>

#include "core/asynchronous.h"
#include "core/kernels/groups.h"
#include "core/stream_order.h"

namespace stagecoach {
namespace {

const Kernels* cpu_kernels = nullptr;

/// What a call reads and writes, and the device that it runs on.
struct Accesses {
  std::vector<Access> all;
  std::optional<Device> device;  // none if every tensor is undefined

  /// Returns the tensor for the queue to keep.
  Tensor read(const Tensor& tensor) { return keep(tensor, false); }
  Tensor write(const Tensor& tensor) {
    if (tensor.defined()) {
      tensor.storage()->bump_version();
    }
    return keep(tensor, true);
  }

 private:
  Tensor keep(const Tensor& tensor, bool writes) {
    if (!tensor.defined()) {
      return {};
    }
    device = tensor.device();
    all.push_back({tensor.storage()->block().get(), writes});
    return tensor.borrowed();
  }
};

// How the queue keeps an argument, by the type of the kernel's parameter.
template <class Parameter>
struct Kept {
  static auto of(const Parameter& value, Accesses&) { return value; }
};
template <class Setting>
struct Kept<const Setting&> {
  static Setting of(const Setting& value, Accesses&) { return value; }
};
template <>
struct Kept<const Tensor&> {
  static Tensor of(const Tensor& tensor, Accesses& accesses) { return accesses.read(tensor); }
};
template <>
struct Kept<Tensor&> {
  static Tensor of(const Tensor& tensor, Accesses& accesses) { return accesses.write(tensor); }
};
template <>
struct Kept<std::span<Tensor>> {
  static std::vector<Tensor> of(std::span<Tensor> tensors, Accesses& accesses) {
    std::vector<Tensor> kept;
    for (const Tensor& tensor : tensors) {
      kept.push_back(accesses.write(tensor));
    }
    return kept;
  }
};
template <>
struct Kept<std::span<ParameterUpdate>> {
  static std::vector<ParameterUpdate> of(std::span<ParameterUpdate> updates, Accesses& accesses) {
    std::vector<ParameterUpdate> kept;
    for (ParameterUpdate& update : updates) {
      kept.push_back({accesses.read(update.grad), accesses.write(update.parameter),
                      Kept<std::span<Tensor>>::of(update.state, accesses), accesses.read(update.count)});
    }
    return kept;
  }
};

/// One row: `call` has the row's parameters.
template <auto row>
struct Queued;
template <class... Parameters, void (*Kernels::*row)(Parameters...)>
struct Queued<row> {
  static inline const char* name = nullptr;
  static void call(Parameters... arguments) {
    Accesses accesses;
    accesses.all.reserve(8);
    std::tuple kept{Kept<Parameters>::of(arguments, accesses)...};
    if (accesses.device) {
      enqueue({*accesses.device, Stream::kCompute}, name, accesses.all, OrderedBy::caller,
              [kept = std::move(kept)]() mutable {
                std::apply([](auto&... each) { (cpu_kernels->*row)(each...); }, kept);
              });
    }
  }
};

template <auto row>
void add(Kernels& table, const char* name) {
  Queued<row>::name = name;
  table.*row = Queued<row>::call;
}

void queue_copy(const Tensor& source, Tensor& out, const Stream& stream, OrderedBy ordered_by) {
  Accesses accesses;
  Tensor from = accesses.read(source);
  Tensor to = accesses.write(out);
  enqueue(stream, "copy", accesses.all, ordered_by,
          [from = std::move(from), to = std::move(to)]() mutable { cpu_kernels->copy(from, to); });
}

/// Copies within a device, or between devices in the order of the program.
void copy(const Tensor& source, Tensor& out) {
  if (source.device() == out.device()) {
    Queued<&Kernels::copy>::call(source, out);
  } else if (!is_asynchronous(out.device())) {
    cpu_kernels->copy(source, out);  // waits for the source
  } else if (!is_asynchronous(source.device())) {
    const Tensor staged = source.clone();  // so that the caller may overwrite the source at once
    queue_copy(staged, out, {out.device(), copy_stream()}, OrderedBy::library);
  } else {
    queue_copy(source, out, {source.device(), copy_stream()}, OrderedBy::library);
  }
}

void add_queued(Kernels& table) {
  // clang-format off
  add<&Kernels::fill>(table, "fill");
  add<&Kernels::copy>(table, "copy");
  add<&Kernels::convert>(table, "convert");
  add<&Kernels::add>(table, "add");
  add<&Kernels::add_scaled>(table, "add_scaled");
  add<&Kernels::scale>(table, "scale");
  add<&Kernels::relu>(table, "relu");
  add<&Kernels::relu_grad>(table, "relu_grad");
  add<&Kernels::gelu>(table, "gelu");
  add<&Kernels::gelu_grad>(table, "gelu_grad");
  add<&Kernels::accumulate>(table, "accumulate");
  add<&Kernels::increment>(table, "increment");
  add<&Kernels::linear>(table, "linear");
  add<&Kernels::linear_grad_input>(table, "linear_grad_input");
  add<&Kernels::linear_grad_weight>(table, "linear_grad_weight");
  add<&Kernels::matmul>(table, "matmul");
  add<&Kernels::conv2d>(table, "conv2d");
  add<&Kernels::conv2d_grad_input>(table, "conv2d_grad_input");
  add<&Kernels::conv2d_grad_weight>(table, "conv2d_grad_weight");
  add<&Kernels::max_pool2d>(table, "max_pool2d");
  add<&Kernels::max_pool2d_grad>(table, "max_pool2d_grad");
  add<&Kernels::global_average_pool>(table, "global_average_pool");
  add<&Kernels::global_average_pool_grad>(table, "global_average_pool_grad");
  add<&Kernels::softmax>(table, "softmax");
  add<&Kernels::softmax_grad>(table, "softmax_grad");
  add<&Kernels::log_softmax>(table, "log_softmax");
  add<&Kernels::log_softmax_grad>(table, "log_softmax_grad");
  add<&Kernels::attention>(table, "attention");
  add<&Kernels::attention_grad>(table, "attention_grad");
  add<&Kernels::transpose>(table, "transpose");
  add<&Kernels::add_broadcast>(table, "add_broadcast");
  add<&Kernels::token_mean>(table, "token_mean");
  add<&Kernels::token_mean_grad>(table, "token_mean_grad");
  add<&Kernels::cross_entropy>(table, "cross_entropy");
  add<&Kernels::cross_entropy_grad>(table, "cross_entropy_grad");
  add<&Kernels::squared_error>(table, "squared_error");
  add<&Kernels::squared_error_grad>(table, "squared_error_grad");
  add<&Kernels::channel_sums>(table, "channel_sums");
  add<&Kernels::batch_statistics>(table, "batch_statistics");
  add<&Kernels::squared_deviations>(table, "squared_deviations");
  add<&Kernels::update_running_statistics>(table, "update_running_statistics");
  add<&Kernels::rstd>(table, "rstd");
  add<&Kernels::batch_norm>(table, "batch_norm");
  add<&Kernels::batch_norm_grad_weight>(table, "batch_norm_grad_weight");
  add<&Kernels::batch_norm_grad_input>(table, "batch_norm_grad_input");
  add<&Kernels::batch_norm_grad_input_of_batch>(table, "batch_norm_grad_input_of_batch");
  add<&Kernels::layer_norm>(table, "layer_norm");
  add<&Kernels::layer_norm_grad_input>(table, "layer_norm_grad_input");
  add<&Kernels::layer_norm_grad_weight>(table, "layer_norm_grad_weight");
  add<&Kernels::sgd_step>(table, "sgd_step");
  add<&Kernels::adam_step>(table, "adam_step");
  add<&Kernels::normalize>(table, "normalize");
  add<&Kernels::count_correct>(table, "count_correct");
  // clang-format on
  table.copy = copy;
}

}  // namespace

const Kernels& queued_kernels(const Kernels& cpu) {
  static const Kernels table = [&] {
    cpu_kernels = &cpu;
    return make_table("asynchronous cpu", {add_queued});
  }();
  return table;
}

void queue_copy(const Tensor& source, Tensor& out, const Stream& stream) {
  queue_copy(source, out, stream, OrderedBy::caller);
}

}  // namespace stagecoach
