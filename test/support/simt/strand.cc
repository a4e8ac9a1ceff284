#include "test/support/simt/strand.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cassert>

#include "comm/error.h"

namespace motley::simt {
namespace {

constexpr std::size_t kGuard = 4096;

}  // namespace

// What runs on the stack for as long as there is one.
struct Strand::Loop {
  static void enter(boost::context::detail::transfer_t from) {
    Strand& self = *static_cast<Strand*>(from.data);
    self.caller_ = from.fctx;
    test::arrived(self.inside_, self.outside_);
    for (;;) {
      assert(self.body_ != nullptr);
      self.body_(self.argument_);
      self.body_ = nullptr;
      self.suspend();
    }
  }
};

Strand::Strand() {
  void* const data = mmap(nullptr, kBytes + kGuard, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw_errno("mapping the stack of a thread of a kernel");
  mprotect(data, kGuard, PROT_NONE);  // running over the end is a segmentation fault
  bottom_ = static_cast<std::byte*>(data) + kGuard;
  inside_.bottom = bottom_;
  inside_.size = kBytes;
  make_context();
}

Strand::~Strand() {
  test::drop_state(inside_);
  munmap(bottom_ - kGuard, kBytes + kGuard);
}

void Strand::make_context() {
  test::make_state(inside_);
  context_ = boost::context::detail::make_fcontext(bottom_ + kBytes, kBytes, &Loop::enter);
}

void Strand::start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  resume();
}

void Strand::resume() {
  test::leaving(outside_, inside_);
  context_ = boost::context::detail::jump_fcontext(context_, this).fctx;
  test::arrived(outside_, inside_);
}

void Strand::suspend() {
  test::leaving(inside_, outside_);
  caller_ = boost::context::detail::jump_fcontext(caller_, nullptr).fctx;
  test::arrived(inside_, outside_);
}

void Strand::abandon() {
  if (!busy()) return;
  body_ = nullptr;
  test::drop_state(inside_);
  make_context();
}

}  // namespace motley::simt
