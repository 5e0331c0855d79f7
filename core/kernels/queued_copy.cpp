#include "core/kernels/queued_copy.h"

#include <utility>

#include "core/asynchronous.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/levels.h"

namespace stagecoach {
namespace {

void queue_copy(const Tensor& source, Tensor& out, const Stream& stream, OrderedBy ordered_by) {
  cpu::Accesses accesses;
  Tensor from = accesses.read(source);
  Tensor to = accesses.write(out);
  enqueue(stream, "copy", accesses.all, ordered_by,
          [from = std::move(from), to = std::move(to)]() mutable { kernels(to.device()).copy(from, to); });
}

}  // namespace

void queued_copy(const Tensor& source, Tensor& out) {
  if (source.device() == out.device()) {
    queue_copy(source, out, {out.device(), Stream::kCompute}, OrderedBy::caller);
  } else if (!is_asynchronous(out.device())) {
    cpu::level_in_use().tables()->kernels.copy(source, out);  // waits for the source
  } else if (!is_asynchronous(source.device())) {
    const Tensor staged = source.clone();  // so that the caller may overwrite the source at once
    queue_copy(staged, out, {out.device(), copy_stream()}, OrderedBy::library);
  } else {
    queue_copy(source, out, {source.device(), copy_stream()}, OrderedBy::library);
  }
}

void queue_copy(const Tensor& source, Tensor& out, const Stream& stream) {
  queue_copy(source, out, stream, OrderedBy::caller);
}

}  // namespace stagecoach
