//! What a 403 to the free check of a credential means.
//!
//! | service | 403 | the credential |
//! |---|---|---|
//! | OpenAI | a restricted key without the scope for the list of models | accepted |
//! | OpenAI | the country is not supported, or the project has no access | refused |
//! | Anthropic | a login without the scope for the list of models | accepted |
//! | Anthropic | `forbidden` (the region), `permission_error` | refused |
//! | Google | the key is leaked, suspended or blocked, or the API is not enabled | refused |
//! | `OpenRouter` | the key may not be used | refused |
//! | LiteLLM | a virtual key that may not list models | accepted |
//!
//! A wrong key is 401, or 400 at Google and LiteLLM.

/// Whether the body of a 403 says that the credential is valid and only lacks the permission to list models.
pub(crate) fn only_listing_is_forbidden(body: &str) -> bool {
    let lacks_scope = body.contains("does not meet scope requirement");
    body.contains("Missing scopes: api.model.read")
        // Logins that cannot call models lack `user:inference`.
        || (lacks_scope && !body.contains("inference"))
        || body.contains("not allowed to call this route")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::openai_restricted(
        "You have insufficient permissions for this operation. Missing scopes: api.model.read. Check that ...",
        true
    )]
    #[case::openai_read_only(
        "You have insufficient permissions for this operation. Missing scopes: model.request. Check that ...",
        false
    )]
    #[case::openai_country("Country, region, or territory not supported", false)]
    #[case::anthropic_login("OAuth token does not meet scope requirement user:profile", true)]
    #[case::anthropic_other_login(
        "OAuth token does not meet scope requirement any_of(user:inference, user:ccr_inference)",
        false
    )]
    #[case::anthropic_region("Request not allowed", false)]
    #[case::google_leaked("Your API key was reported as leaked. Please use another API key.", false)]
    #[case::google_disabled(
        "Generative Language API has not been used in project 1 before or it is disabled.",
        false
    )]
    #[case::litellm(
        "Virtual key is not allowed to call this route. Only allowed to call routes: ['/chat/completions'].",
        true
    )]
    #[case::nothing("", false)]
    fn a_valid_credential_is_distinguished_from_a_refused_one(#[case] message: &str, #[case] is_valid: bool) {
        assert_eq!(only_listing_is_forbidden(message), is_valid);
    }
}
