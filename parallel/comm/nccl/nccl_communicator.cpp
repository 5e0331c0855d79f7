#include "parallel/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

std::string with_type(const std::string& context, const std::string& type) {
  return fmt::format("{} ({})", context, type);
}

}  // namespace

NcclCommunicator::NcclCommunicator(ControlChannel& control, std::unique_ptr<PointToPointBackend> backend, Group group)
    : ExchangeCommunicator(std::move(group)),
      control_(control),
      backend_(std::move(backend)),
      exceptions_before_(std::uncaught_exceptions()) {
  STAGECOACH_CHECK(clock().kind() == ClockKind::wall, "transport nccl: expected the wall clock, got a virtual clock");
  backend_->introduce_by({.tell =
                              [this](int to, const std::string& text) {
                                control_.post(member(to), key(fmt::format("backend/{}", rank())), text);
                              },
                          .heard = [this](int from) { return control_.take(key(fmt::format("backend/{}", from))); }});
}

NcclCommunicator::~NcclCommunicator() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (broken_ || unwinding || control_.has_failed()) {
    backend_->abort();
    return;
  }
  try {
    wait([this] { return outbox_.empty(); }, [this] { return error_context("completing the sends"); });
    unwanted_.empty() ? backend_->close() : backend_->abort();
  } catch (const Error&) {  // pending sends are abandoned; wait() has ended them
  }
}

template <class Call>
auto NcclCommunicator::guarded(const Call& call, const ErrorContext& context) {
  try {
    return call();
  } catch (const BackendError& error) {
    broken_ = true;
    backend_->abort();
    throw CommError(fmt::format("{}: {}", context(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    backend_->abort();
    throw;
  }
}

template <class Done>
void NcclCommunicator::wait(const Done& done, const ErrorContext& context) {
  ControlWait control_wait(control_, wait_policy().stop, context, &wait_policy().renewed);
  const auto serve_until_done = [&] {
    for (serve(); !done(); serve()) {
      control_wait.poll();
    }
  };
  guarded(serve_until_done, context);
}

void NcclCommunicator::serve() {
  backend_->advance();
  std::erase_if(outbox_, [](const std::shared_ptr<Message>& sent) {
    const bool is_done = sent->is_done();
    if (is_done) {
      *sent = {};
    }
    return is_done;
  });
}

NcclCommunicator::Message NcclCommunicator::start(PointToPointBackend::Move::Direction direction, const Tensor& tensor,
                                                  int peer, int tag) {
  if (tensor.bytes() == 0) {
    return {tensor};
  }
  const bool is_receive = direction == PointToPointBackend::Move::Direction::in;
  const auto context = [&] {
    return with_type(error_context(is_receive ? "receive" : "send", is_receive ? "from" : "to", peer, tag),
                     type_of(tensor));
  };
  return {tensor, guarded([&] { return backend_->start({direction, tensor, peer, tag}); }, context)};
}

PendingSend NcclCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  count_message(to, bytes_of(tensor));
  const auto event = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  trace_send(to, tag, tensor.bytes());
  const auto sent =
      std::make_shared<Message>(start(PointToPointBackend::Move::Direction::out, tensor.detach(), to, tag));
  outbox_.push_back(sent);
  const auto wait_completed = [this, sent, event, to, tag, type = type_of(tensor), work = current_work()] {
    const Span span("send", "wait");
    const Waiting waiting(clock());
    wait([&] { return sent->is_done(); }, [&] { return with_type(send_context(to, tag, work), type); });
    group().recorder->end(event);
  };
  return {wait_completed, [this, sent, event] {
            const bool completed = sent->is_done();
            if (completed) {
              group().recorder->end(event);
            }
            return completed;
          }};
}

NcclCommunicator::Message NcclCommunicator::post(const Shape& shape, DType dtype, int from, int tag) {
  const auto found = unwanted_.find(from);
  if (found == unwanted_.end()) {
    return start(PointToPointBackend::Move::Direction::in, Tensor::empty(shape, dtype, device()), from, tag);
  }
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    unwanted_.erase(found);
  }
  if (message.tensor.shape() != shape || message.tensor.dtype() != dtype) {
    throw CommError(fmt::format(
        "{0}: an earlier receive of {1} that was never waited for gets the next message, because NCCL cannot cancel a "
        "receive: expected a receive of the same shape and type, got {2}; wait for every receive",
        error_context("receive", "from", from, tag), type_of(message.tensor), type_of(shape, dtype)));
  }
  return message;
}

PendingReceive NcclCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  // NCCL cannot withdraw a receive: if this one is never waited for, the next receive from the same rank takes it over.
  const auto keep_unwanted = [this, from](Message* message) {
    if (message->tensor.defined()) {
      unwanted_[from].push_back(std::move(*message));
    }
    delete message;
  };
  const std::shared_ptr<Message> receive(new Message(post(shape, dtype, from, tag)), keep_unwanted);
  return PendingReceive([this, receive, shape, dtype, from, tag, work = current_work()] {
    const Recorded recorded(*group().recorder, message_event("receive", from, tag, dtype, shape));
    const Tensor tensor =
        wait_for(*receive, [&] { return with_type(receive_context(from, tag, work), type_of(shape, dtype)); });
    trace_use(from, tag, clock().now());
    return tensor;
  });
}

Tensor NcclCommunicator::wait_for(Message& message, const ErrorContext& context) {
  const Span span("receive", "wait");
  const Waiting waiting(clock());
  wait([&] { return message.is_done(); }, context);
  return std::exchange(message, {}).tensor;
}

void NcclCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  control_.post(member(to), number_key(rank(), tag), fmt::format("{:.17g}", number));
}

double NcclCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*group().recorder, message_event("receive_number", from, tag, DType::float64, {1}));
  const Waiting waiting(clock());
  std::optional<double> number;
  wait([&] { return (number = try_receive_number(from, tag)).has_value(); },
       [&] { return error_context("receive_number", "from", from, tag); });
  return *number;
}

std::optional<double> NcclCommunicator::try_receive_number(int from, int tag) {
  require_peer("try_receive_number", from, tag);
  const std::optional<std::string> text = control_.take(number_key(from, tag));
  return text ? std::optional(std::strtod(text->c_str(), nullptr)) : std::nullopt;
}

void NcclCommunicator::exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) {
  std::vector<PointToPointBackend::Move> moves;
  for (int r = 0; r < size(); ++r) {
    const PeerBuffers& buffer = buffers[static_cast<std::size_t>(r)];
    if (r != rank() && buffer.in.defined() && buffer.in.bytes() > 0) {
      moves.push_back({PointToPointBackend::Move::Direction::in, buffer.in, r});
    }
    if (r != rank() && buffer.out.defined() && buffer.out.bytes() > 0) {
      moves.push_back({PointToPointBackend::Move::Direction::out, buffer.out, r});
    }
  }
  if (moves.empty()) {
    return synchronize({device(), Stream::kCompute});
  }
  const auto context = [&] { return with_type(error_context(operation), type_of(like)); };
  const auto transfer = guarded([&] { return backend_->exchange(std::move(moves)); }, context);
  wait([&] { return transfer->is_done(); }, context);
}

bool NcclCommunicator::sum_natively(Tensor& tensor) {
  const auto context = [&] { return with_type(error_context("all_reduce"), type_of(tensor)); };
  const auto transfer = guarded([&] { return backend_->all_reduce(tensor); }, context);
  wait([&] { return transfer->is_done(); }, context);
  return true;
}

std::unique_ptr<PointToPointBackend> NcclCommunicator::split_backend(int colour, int key, const char* operation) {
  const auto context = [&] { return error_context(operation); };
  ControlWait control_wait(control_, wait_policy().stop, context, &wait_policy().renewed);
  const auto poll = [&] {
    serve();  // a late rank may still need a message before it calls split
    control_wait.poll();
  };
  return guarded([&] { return backend_->split(colour, key, poll); }, context);
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  // NCCL requires colours >= 0, so the first member's world rank is the colour.
  auto backend = split_backend(part.members[0], part.rank, "split");
  return std::make_unique<NcclCommunicator>(control_, std::move(backend), std::move(part));
}

std::unique_ptr<Communicator> NcclCommunicator::duplicate() {
  auto backend = split_backend(0, rank(), "duplicate");
  return std::make_unique<NcclCommunicator>(control_, std::move(backend), duplicated());
}

}  // namespace stagecoach
