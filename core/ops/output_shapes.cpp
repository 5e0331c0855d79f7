#include "core/ops/output_shapes.h"

#include <algorithm>

#include "core/base/error.h"

namespace stagecoach {

Shape linear_shape(const Shape& x, const Shape& weight) {
  STAGECOACH_CHECK(x.dims() >= 1 && weight.dims() == 2 && x[-1] == weight[1],
                   "linear: expected input […, I] and weight [O, I], got {} and {}", to_string(x), to_string(weight));
  return x.with(-1, weight[0]);
}

Shape matmul_shape(const Shape& a, const Shape& b) {
  const bool are_batches = a.dims() >= 2 && a.dims() == b.dims() && std::equal(a.begin(), a.end() - 2, b.begin());
  STAGECOACH_CHECK(are_batches && a[-1] == b[-2], "matmul: expected factors […, M, K] and […, K, N], got {} and {}",
                   to_string(a), to_string(b));
  return a.with(-1, b[-1]);
}

Shape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dSettings& settings) {
  STAGECOACH_CHECK(x.dims() == 4 && weight.dims() == 4 && x[1] == weight[1] && weight[2] == weight[3],
                   "conv2d: expected input [N, C, H, W] and weight [O, C, K, K], got {} and {}", to_string(x),
                   to_string(weight));
  const Window window{weight[2], settings.stride, settings.padding};
  STAGECOACH_CHECK(window.kernel >= 1 && window.stride >= 1 && window.padding >= 0,
                   "conv2d: expected a kernel and a stride of at least 1 and a padding of at least 0, got weight {}, "
                   "stride {} and padding {}",
                   to_string(weight), window.stride, window.padding);
  STAGECOACH_CHECK(x[2] >= 1 && x[3] >= 1, "conv2d: expected images of at least 1 x 1 pixels, got input {}",
                   to_string(x));
  STAGECOACH_CHECK(
      x[2] + 2 * window.padding >= window.kernel && x[3] + 2 * window.padding >= window.kernel,
      "conv2d: expected a padded input at least as large as the kernel, got input {}, padding {} and weight {}",
      to_string(x), window.padding, to_string(weight));
  return {x[0], weight[0], window.positions(x[2]), window.positions(x[3])};
}

Shape max_pool2d_shape(const Shape& x, const Window& window) {
  STAGECOACH_CHECK(x.dims() == 4, "max_pool2d: expected input [N, C, H, W], got {}", to_string(x));
  STAGECOACH_CHECK(
      window.kernel >= 1 && window.stride >= 1 && window.padding >= 0 && 2 * window.padding <= window.kernel,
      "max_pool2d: expected a kernel and a stride of at least 1 and a padding from 0 to half the kernel, got kernel "
      "{}, stride {} and padding {}",
      window.kernel, window.stride, window.padding);
  STAGECOACH_CHECK(
      x[2] + 2 * window.padding >= window.kernel && x[3] + 2 * window.padding >= window.kernel,
      "max_pool2d: expected a padded input at least as large as the kernel, got input {}, padding {} and kernel {}",
      to_string(x), window.padding, window.kernel);
  STAGECOACH_CHECK(x[2] > 0 && x[3] > 0, "max_pool2d: expected images of at least 1 x 1 pixels, got input {}",
                   to_string(x));
  return {x[0], x[1], window.positions(x[2]), window.positions(x[3])};
}

Shape global_average_pool_shape(const Shape& x) {
  STAGECOACH_CHECK(x.dims() == 4, "global_average_pool: expected input [N, C, H, W], got {}", to_string(x));
  STAGECOACH_CHECK(x[2] > 0 && x[3] > 0, "global_average_pool: expected images of at least 1 x 1 pixels, got input {}",
                   to_string(x));
  return {x[0], x[1]};
}

Shape flatten_shape(const Shape& x) {
  return {x[0], x.product(1, x.dims())};  // not -1, which cannot be inferred for an empty batch
}

Shape rows_shape(const char* operation, const Shape& x) {
  STAGECOACH_CHECK(x.dims() >= 1 && x[-1] > 0, "{}: expected input […, C], got {}", operation, to_string(x));
  return x;
}

Shape batch_norm_shape(const Shape& x, std::int64_t channels) {
  STAGECOACH_CHECK(x.dims() == 2 || x.dims() == 4, "batch_norm: expected input [N, C] or [N, C, H, W], got {}",
                   to_string(x));
  STAGECOACH_CHECK(x[1] > 0, "batch_norm: expected at least one channel, got input {}", to_string(x));
  STAGECOACH_CHECK(x[1] == channels, "batch_norm: expected {} channels, got input {}", channels, to_string(x));
  return x;
}

Shape layer_norm_shape(const Shape& x, const Shape& weight) {
  STAGECOACH_CHECK(weight.dims() == 1 && x.dims() >= 1 && x[-1] == weight[0] && x[-1] > 0,
                   "layer_norm: expected input […, C] and weight [C], got {} and {}", to_string(x), to_string(weight));
  return x;
}

Shape attention_shape(const Shape& qkv, std::int64_t heads) {
  STAGECOACH_CHECK(qkv.dims() == 3 && qkv[1] > 0 && qkv[2] > 0 && qkv[2] % 3 == 0,
                   "attention: expected input [N, T, 3 W], got {}", to_string(qkv));
  STAGECOACH_CHECK(heads >= 1 && qkv[2] / 3 % heads == 0,
                   "attention: expected a number of heads that divides the width {} of input {}, got {}", qkv[2] / 3,
                   to_string(qkv), heads);
  return qkv.with(2, qkv[2] / 3);
}

Shape embedding_shape(const Shape& tokens, const Shape& weight) {
  STAGECOACH_CHECK(weight.dims() == 2 && weight[0] > 0 && weight[1] > 0,
                   "embedding: expected weight [V, C], got {} for tokens {}", to_string(weight), to_string(tokens));
  std::vector<std::int64_t> extents(tokens.begin(), tokens.end());
  extents.push_back(weight[1]);
  return Shape(extents.data(), static_cast<int>(extents.size()));
}

Shape transpose_shape(const Shape& x) {
  STAGECOACH_CHECK(x.dims() >= 2, "transpose: expected input […, R, C], got {}", to_string(x));
  return x.with(-2, x[-1]).with(-1, x[-2]);
}

Shape token_mean_shape(const Shape& x) {
  STAGECOACH_CHECK(x.dims() == 3 && x[1] > 0, "token_mean: expected input [N, T, C], got {}", to_string(x));
  return {x[0], x[2]};
}

Shape add_broadcast_shape(const Shape& x, const Shape& b) {
  STAGECOACH_CHECK(x.dims() == b.dims() + 1 && std::equal(b.begin(), b.end(), x.begin() + 1),
                   "add_broadcast: expected a term […] for input [N, …], got {} for {}", to_string(b), to_string(x));
  return x;
}

Shape add_shape(const Shape& a, const Shape& b) {
  STAGECOACH_CHECK(a == b, "add: expected equal shapes, got {} and {}", to_string(a), to_string(b));
  return a;
}

}  // namespace stagecoach
