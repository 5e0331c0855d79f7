#include "parallel/pipeline/stage_messages.h"

#include "core/trace.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

/// Names a message in errors and in the trace, until the end of the scope.
class MessageScope {
 public:
  MessageScope(const char* name, Operation computation, const Action& message)
      : activity_(name_of(computation), message.stage, message.microbatch),
        span_(name, "communication", [&] { return to_string(message); }) {}

 private:
  Activity activity_;
  Span span_;
};

}  // namespace

int StageMessages::tag(Operation computation, int microbatch) {
  return 2 * microbatch + (computation == Operation::backward ? 1 : 0);
}

Tensor StageMessages::receive(Operation computation, int microbatch, int entered, int from) {
  const Operation operation =
      computation == Operation::forward ? Operation::receive_forward : Operation::receive_backward;
  const MessageScope scope("receive", computation, {operation, comm_.rank(), microbatch});
  const Shape shape =
      entering_[static_cast<std::size_t>(entered)].with(0, sizes_[static_cast<std::size_t>(microbatch)]);
  return comm_.receive(shape, DType::float32, from, tag(computation, microbatch));
}

void StageMessages::send(Operation computation, int microbatch, const Tensor& tensor, int to) {
  const Operation operation = computation == Operation::forward ? Operation::send_forward : Operation::send_backward;
  const MessageScope scope("send", computation, {operation, comm_.rank(), microbatch});
  sends_.push_back(comm_.send_async(tensor, to, tag(computation, microbatch)));
}

void StageMessages::wait_for_sends() {
  for (const PendingSend& send : sends_) {
    send.wait();
  }
  sends_.clear();
}

}  // namespace stagecoach
