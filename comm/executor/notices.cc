#include "comm/executor/notices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/executor/describe.h"

namespace motley {
namespace {

constexpr std::size_t kKept = 64;        // notices, and calls that have failed
constexpr std::uint32_t kQuestions = 0;  // the cookie of all of them, which carry nothing
constexpr std::size_t kMaxBlamed = 64;
// Bytes: what it is and whether to pass it on, and how many ranks follow.
constexpr std::size_t kHead = 2;
constexpr unsigned kCodes = static_cast<unsigned>(ErrorCode::kIo) + 1;

}  // namespace

bool concerns(const Notice& notice, const CallId& call, const Group& group,
              bool complete) noexcept {
  if (notice.call.group == call.group) return !complete && notice.call.number <= call.number;
  return notice.call.group.is_pair() && group.contains(notice.from);
}

std::vector<std::byte> encode(const Notice& notice) {
  const std::size_t blamed = std::min(notice.ranks.size(), kMaxBlamed);
  std::vector<std::byte> out(kHead + 4 * blamed);
  const unsigned pass_on = notice.pass_on ? 1 : 0;
  out[0] = static_cast<std::byte>(2 * static_cast<unsigned>(notice.code) + pass_on);
  out[1] = static_cast<std::byte>(blamed);
  if (blamed > 0) std::memcpy(&out[kHead], notice.ranks.data(), 4 * blamed);
  const std::string_view text =
      std::string_view(notice.text).substr(0, kMaxNoticeBytes - out.size());
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), first, first + text.size());
  return out;
}

std::optional<Notice> decode_notice(int from, const CallId& call, ConstBytes data) {
  if (data.size() < kHead || data.size() > kMaxNoticeBytes) return std::nullopt;
  const auto head = std::to_integer<unsigned>(data[0]);
  const auto blamed = std::to_integer<std::size_t>(data[1]);
  if (head >= 2 * kCodes || blamed > kMaxBlamed || data.size() < kHead + 4 * blamed)
    return std::nullopt;
  Notice notice{.call = call,
                .from = from,
                .ranks = std::vector<int>(blamed),
                .text = {},
                .pass_on = head % 2 == 1,
                .code = static_cast<ErrorCode>(head / 2)};
  if (blamed > 0) std::memcpy(notice.ranks.data(), &data[kHead], 4 * blamed);
  const ConstBytes text = data.subspan(kHead + 4 * blamed);
  notice.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return notice;
}

Notice disagreement(const CallId& call, int here, const Fingerprint& mine, int there,
                    const Fingerprint& theirs) {
  return {.call = call,
          .from = here,
          .ranks = {std::min(here, there), std::max(here, there)},
          .text = fmt::format("{} at rank {}, {} at rank {}", to_text(mine), here, to_text(theirs),
                              there)};
}

Notices::Notices(Transport& transport) : transport_(transport) { transport.listen(*this); }

Notices::~Notices() { transport_.cancel(*this, {}); }

void Notices::tell(const Group& group, const Notice& notice) {
  if (++cookies_ == kQuestions) ++cookies_;
  Outgoing& outgoing = outgoing_[cookies_];
  outgoing.data = encode(notice);
  const Tag tag{.call = notice.call, .piece = Tag::kNotice, .fingerprint = {}};
  for (const int rank : group.ranks()) {
    if (rank != transport_.rank() && !send(rank, tag, outgoing.data, cookies_)) ++outgoing.unsent;
  }
  if (outgoing.unsent == 0) outgoing_.erase(cookies_);
}

void Notices::ask(const CallId& call, const Fingerprint& fingerprint,
                  const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    const Tag tag{.call = call, .piece = Tag::kQuestion, .fingerprint = fingerprint};
    (void)send(rank, tag, {}, kQuestions);
  }
}

bool Notices::send(int rank, const Tag& tag, ConstBytes data, std::uint32_t cookie) {
  const bool sent = transport_.post_send(rank, tag, data, *this, cookie);
  if (!sent) ++unsent_;
  return sent;
}

void Notices::sent(std::uint32_t cookie) {
  --unsent_;
  const auto found = outgoing_.find(cookie);
  if (found != outgoing_.end() && --found->second.unsent == 0) outgoing_.erase(found);
}

void Notices::failed(std::uint32_t cookie, const Error&) { sent(cookie); }

void Notices::received(std::uint32_t from, const Tag& tag, ConstBytes data) {
  auto notice = decode_notice(static_cast<int>(from), tag.call, data);
  if (notice && is_news(tag.call)) arrived_.push_back(std::move(*notice));
}

// The call is complete here and its group forgotten: the sender tells the others.
void Notices::disagreed(int from, const Tag& theirs, const Fingerprint& ours) {
  if (!is_news(theirs.call)) return;
  Notice notice = disagreement(theirs.call, transport_.rank(), ours, from, theirs.fingerprint);
  notice.pass_on = true;
  tell(Group({from}), notice);
  arrived_.push_back(std::move(notice));
}

std::vector<Notice> Notices::take() { return std::exchange(arrived_, {}); }

void Notices::keep(Notice notice) {
  kept_.push_back(std::move(notice));
  if (kept_.size() > kKept) kept_.pop_front();
}

bool Notices::has_kept_for(const CallId& call, const Group& group, bool complete) const noexcept {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const Notice& notice) { return concerns(notice, call, group, complete); });
}

std::optional<Notice> Notices::take_kept(const CallId& call, const Group& group, bool complete) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Notice& notice) {
    return concerns(notice, call, group, complete);
  });
  if (found == kept_.end()) return std::nullopt;
  Notice notice = std::move(*found);
  kept_.erase(found);
  return notice;
}

void Notices::forget(const CallId& call) {
  failed_.push_back(call);
  if (failed_.size() > kKept) failed_.pop_front();
  std::erase_if(kept_, [&](const Notice& notice) { return notice.call == call; });
}

bool Notices::is_news(const CallId& call) const noexcept {
  return std::find(failed_.begin(), failed_.end(), call) == failed_.end();
}

}  // namespace motley
