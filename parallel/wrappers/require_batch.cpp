#include "parallel/wrappers/require_batch.h"

#include "core/base/throw_if.h"

namespace stagecoach {

void require_input(const char* wrapper, const Tensor& x, DType type) {
  const bool is_batch = x.defined() && x.dims() >= 2 && x.size(0) >= 1;
  throw_if<UsageError>(
      !is_batch || (x.dtype() != type && x.dtype() != DType::int32 && x.dtype() != DType::uint8),
      "{}: expected inputs {}, int32 or uint8 of two or more dimensions [N, …], with N of at least 1, got {}; give one "
      "batch; for weights and inputs of float64, set `.type` of the settings to DType::float64",
      wrapper, name_of(type), describe(x));
}

void require_type_of_weights(const char* wrapper, DType type) {
  throw_if<UsageError>(type != DType::float32 && type != DType::float64,
                       "{}: expected weights of type float32 or float64, got {}", wrapper, name_of(type));
}

void require_like(const char* wrapper, const Tensor& x, const Shape& sample, DType type) {
  throw_if<UsageError>(
      x.shape().with(0, 1) != sample || x.dtype() != type,
      "{}: expected inputs of shape [N, …] with {}{} for one, for which the layers were placed, got {}; "
      "give such inputs, or begin with place({}, DType::{})",
      wrapper, name_of(type), to_string(sample), describe(x), to_string(x.shape()), name_of(x.dtype()));
}

void require_value(const char* wrapper, const std::string& name, const Tensor& value, const Tensor& x) {
  throw_if<UsageError>(!value.defined() || value.dims() < 1 || value.size(0) != x.size(0),
                       "{}: expected '{}' [{}, …], with a row per sample, got {}; give that of the same batch", wrapper,
                       name, x.size(0), describe(value));
}

void require_batch(const char* wrapper, const Tensor& x, const Tensor& target, const std::optional<LossFunction>& loss,
                   DType type) {
  require_input(wrapper, x, type);
  if (loss) {
    throw_if<UsageError>(!target.defined() || target.dims() < 1 || target.size(0) != x.size(0),
                         "{}: expected a target [{}, …], one per sample, got {}; give the targets of the same batch",
                         wrapper, x.size(0), describe(target));
    return;
  }
  throw_if<UsageError>(!target.defined() || target.dtype() != DType::int32 || target.shape() != Shape{x.size(0)},
                       "{}: expected labels int32[{}], one per sample, got {}; give the labels of the same batch, or a "
                       "loss of your own for other targets",
                       wrapper, x.size(0), describe(target));
}

}  // namespace stagecoach
