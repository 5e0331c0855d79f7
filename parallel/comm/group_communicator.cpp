#include "parallel/comm/group_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "core/trace.h"

namespace stagecoach {

std::string type_of(const Shape& shape, DType dtype) { return fmt::format("{}{}", name_of(dtype), to_string(shape)); }

std::string type_of(const Tensor& tensor) { return type_of(tensor.shape(), tensor.dtype()); }

PendingSend GroupCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  group().sent->add(member(to), bytes_of(tensor));
  const auto number = recorder_->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  trace_send(to, tag, tensor.bytes());
  const auto sent = [&] {
    const auto unmodelled = this->unmodelled();
    return start_send(unmodelled ? tensor.detach().clone() : tensor.detach(), to, tag,
                      [&] { return message_context("send", "to", to, tag); });
  }();
  const auto wait = [this, sent, number, to, tag, work = current_work()] {
    const Span span("send", "wait");
    Waiting waiting(clock());
    waiting.until(sent->wait([&] { return send_context(to, tag, work); }));
    recorder_->end(number);
  };
  return {wait, [this, sent, number] {
            // Where times are computed, only at this rank's time: a wait for it would then take no time, so it makes no
            // difference when this is noticed.
            const std::optional<double> at = sent->completed_at();
            const bool completed = at && (clock().kind() == ClockKind::wall || *at <= clock().now());
            if (completed) {
              recorder_->end(number);
            }
            return completed;
          }};
}

PendingReceive GroupCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  // On a modelled clock a posted receive has its memory, whatever the transport needs.
  Tensor buffer = clock().kind() == ClockKind::modelled ? Tensor::empty(shape, dtype, device()) : Tensor();
  const auto incoming = [&] {
    const auto unmodelled = this->unmodelled();
    return post_receive(shape, dtype, device(), from, tag,
                        [&] { return message_context("receive", "from", from, tag); });
  }();
  return PendingReceive([this, incoming, buffer, shape, dtype, from, tag, work = current_work()]() mutable {
    const Recorded recorded(*recorder_, message_event("receive", from, tag, dtype, shape));
    const auto context = [&] { return receive_context(from, tag, work); };
    const double arrival = wait_for(*incoming, context);
    Tensor tensor = incoming->take(context);
    if (buffer.defined()) {
      const auto unmodelled = this->unmodelled();
      buffer.copy_from(tensor);
      tensor = std::exchange(buffer, {});
    }
    trace_use(from, tag, arrival);
    return tensor;
  });
}

double GroupCommunicator::wait_for(Incoming& incoming, const ErrorContext& context) {
  const Span span("receive", "wait");
  Waiting waiting(clock());
  const double arrival = incoming.wait(context);
  waiting.until(arrival);
  return arrival;
}

void GroupCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*recorder_, message_event("send_number", to, tag, DType::float64, {1}));
  start_number(number, to, tag, [&] { return message_context("send_number", "to", to, tag); });
}

double GroupCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*recorder_, message_event("receive_number", from, tag, DType::float64, {1}));
  const Span span("receive", "wait");
  const Waiting waiting(clock());
  return wait_for_number(from, tag, [&] { return message_context("receive_number", "from", from, tag); });
}

std::optional<double> GroupCommunicator::try_receive_number(int from, int tag) {
  require_peer("try_receive_number", from, tag);
  return poll_number(from, tag, [&] { return message_context("try_receive_number", "from", from, tag); });
}

void GroupCommunicator::start_number(double number, int to, int tag, const ErrorContext& context) {
  const UncountedMemory memory;  // it is nobody's
  start_send(Tensor::from(std::vector{number}, {1}), to, tag, context);
}

double GroupCommunicator::wait_for_number(int from, int tag, const ErrorContext& context) {
  const UncountedMemory memory;
  const auto incoming = post_receive({1}, DType::float64, Device{}, from, tag, context);
  incoming->wait(context);
  return incoming->take(context).item();
}

std::unique_ptr<Communicator> GroupCommunicator::duplicate() {
  Group copy = group();
  copy.name = fmt::format("{}+{}", group().name, duplicates_++);
  copy.clock = clock().another();
  return make_duplicate(std::move(copy));
}

std::optional<GroupCommunicator::Unmodelled> GroupCommunicator::unmodelled() const {
  return clock().kind() == ClockKind::modelled ? std::optional<Unmodelled>(std::in_place, clock()) : std::nullopt;
}

Tensor GroupCommunicator::counted(const Tensor& tensor) const {
  if (clock().kind() != ClockKind::modelled) {
    return tensor;
  }
  Tensor mine = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  const Waiting waiting(clock());
  mine.copy_from(tensor);
  return mine;
}

void GroupCommunicator::set_spinning(bool spinning) {
  wait_policy_.may_spin = spinning;
  if (wait_policy_.polls()) {
    wake();
  }
}

void GroupCommunicator::abort() {
  aborted_.request_stop();
  wake();
}

void GroupCommunicator::require_peer(const char* operation, int peer, int tag) const {
  STAGECOACH_CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0 && tag <= kMaxTag,
                   "{0}: expected another rank of the group and a tag from 0 to {4}, got rank {1} of {2} and tag {3}",
                   error_context(operation), peer, size(), tag, kMaxTag);
}

void GroupCommunicator::require_here(const char* operation, const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.device() == device() || tensor.device() == number_device(),
                   "{}: expected a tensor on this rank's device, got {} for {}", error_context(operation),
                   describe(tensor), to_string(device()));
}

std::string GroupCommunicator::error_context(const std::string& operation) const {
  const std::string activity = current_activity();
  return fmt::format("rank {}: {}{}{}", member(rank()), operation, activity.empty() ? "" : ", in the ", activity);
}

std::string GroupCommunicator::message_context(const char* operation, const char* direction, int peer, int tag) const {
  return error_context(fmt::format("{} {} rank {}, tag {}", operation, direction, member(peer), tag));
}

std::string GroupCommunicator::send_context(int to, int tag, const Activity::Work& started) const {
  const Activity then(started.operation, started.stage, started.microbatch);
  return message_context("send", "to", to, tag);
}

std::string GroupCommunicator::receive_context(int from, int tag, const Activity::Work& posted) const {
  const std::string context = message_context("receive", "from", from, tag);
  const std::string then = to_string(posted);
  return then.empty() || then == current_activity() ? context : fmt::format("{} (posted in the {})", context, then);
}

CommError GroupCommunicator::unexpected(const std::string& context, const std::string& expected,
                                        const std::string& got) {
  return CommError(fmt::format("{}: expected {}, got {}", context, expected, got));
}

FlightRecorder::Event GroupCommunicator::message_event(const char* operation, int peer, int tag, DType dtype,
                                                       const Shape& shape) const {
  return {
      .operation = operation, .group = group().name, .peer = member(peer), .tag = tag, .dtype = dtype, .shape = shape};
}

std::string GroupCommunicator::channel(int from, int to, int tag) const {
  return fmt::format("{}/{}/{}/{}", group().name, member(from), member(to), tag);
}

void GroupCommunicator::trace_send(int to, int tag, std::size_t bytes) const {
  if (Trace::current() != nullptr) {
    record_send(channel(rank(), to, tag), bytes);
  }
}

void GroupCommunicator::trace_use(int from, int tag, double arrival) const {
  if (Trace::current() != nullptr) {
    record_use(channel(from, rank(), tag), arrival);
  }
}

}  // namespace stagecoach
