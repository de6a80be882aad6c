package tidegate.pulsar;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import javax.servlet.http.HttpServletRequest;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.authentication.AuthenticationDataSource;
import org.apache.pulsar.broker.authentication.AuthenticationDataSubscription;
import org.apache.pulsar.broker.authorization.AuthorizationService;
import org.apache.pulsar.broker.lookup.LookupResult;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.broker.web.AuthenticationFilter;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.NamespaceOperation;
import org.apache.pulsar.common.policies.data.TopicOperation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.web.ApiTarget;
import tidegate.pulsar.web.Guard;
import tidegate.pulsar.web.Problem;

/**
 * The broker's own checks, in the order of its admin interface: authentication, authorization, the topic, its owner.
 *
 * <p>Reading a topic needs permission for its stats, reading a subscription permission to consume from it, a change also
 * permission to produce to the topic, and reading a namespace permission to list its topics. Only superusers see the whole
 * broker. No answer mentions a topic before authorization.
 */
final class BrokerGuard implements Guard {
    private static final Logger LOG = LoggerFactory.getLogger(BrokerGuard.class);
    private static final String PROXIED_FOR = "X-Original-Principal";
    private static final String HTTPS = "https";

    private final PulsarService pulsar;

    BrokerGuard(PulsarService pulsar) {
        this.pulsar = pulsar;
    }

    /** A verdict other than "serve it"; {@code thenCompose} stops there. */
    private static final class Otherwise extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final transient Verdict verdict;

        Otherwise(Verdict verdict) {
            super(verdict.toString(), null, false, false);
            this.verdict = verdict;
        }

        Otherwise(int status, String title, String detail) {
            this(new Refuse(new Problem(status, title, detail)));
        }
    }

    /** The client as authenticated by Pulsar's filter; null without authentication. */
    private record Client(String role, String original, AuthenticationDataSource data) {
        static Client of(HttpServletRequest request) {
            return new Client((String) request.getAttribute(AuthenticationFilter.AuthenticatedRoleAttributeName),
                    request.getHeader(PROXIED_FOR),
                    (AuthenticationDataSource) request.getAttribute(AuthenticationFilter.AuthenticatedDataAttributeName));
        }

        /** The role for the daemon's audit log. Only a proxy may speak for another. */
        String shown(ServiceConfiguration config) {
            boolean speaksForOther = original != null && !original.isBlank() && config.getProxyRoles().contains(role);
            return speaksForOther ? original : role == null ? "" : role;
        }
    }

    @Override
    public CompletionStage<Verdict> decide(ApiTarget target, boolean changes, HttpServletRequest request) {
        Client client = Client.of(request);
        boolean https = HTTPS.equalsIgnoreCase(request.getScheme());
        CompletableFuture<Verdict> verdict;
        try {
            if (target.scope() != ApiTarget.Scope.TOPIC && target.scope() != ApiTarget.Scope.SUBSCRIPTION) {
                return withoutTopic(client, target).exceptionally(failure -> verdictOf(failure, target));
            }
            TopicName topic = topicName(target);
            verdict = authorize(client, topic, target.subscription(), changes)
                    .thenCompose(ignored -> requireTopic(topic, target.isSegment()))
                    .thenCompose(ignored -> requireOwned(topic, target.authoritative(), https))
                    .thenApply(ignored -> new Serve(client.shown(pulsar.getConfiguration())));
        } catch (RuntimeException e) {
            verdict = CompletableFuture.failedFuture(e);
        }
        return verdict.exceptionally(failure -> verdictOf(failure, target));
    }

    /** Judges a request without a topic: this broker answers it, whatever it owns. */
    private CompletableFuture<Verdict> withoutTopic(Client client, ApiTarget target) {
        boolean authorizes = isAuthorizing(client);
        CompletableFuture<Void> allowed = CompletableFuture.completedFuture(null);
        if (target.scope() == ApiTarget.Scope.NAMESPACE) {
            NamespaceName namespace = namespaceName(target);
            if (authorizes) {
                allowed = requireNamespace(client, namespace);
            }
            allowed = allowed.thenCompose(ignored -> requirePolicies(namespace));
        } else if (authorizes && target.scope() == ApiTarget.Scope.BROKER) {
            allowed = requireSuperuser(client);
        }
        return allowed.thenApply(ignored -> new Serve(client.shown(pulsar.getConfiguration())));
    }

    private static NamespaceName namespaceName(ApiTarget target) {
        try {
            return NamespaceName.get(target.tenant(), target.namespace());
        } catch (IllegalArgumentException e) {
            throw new Otherwise(400, "Bad Request", "no namespace can have that name: " + e.getMessage());
        }
    }

    private boolean isAuthorizing(Client client) {
        if (!pulsar.getConfiguration().isAuthenticationEnabled() || !pulsar.getBrokerService().isAuthorizationEnabled()) {
            return false;
        }
        if (client.role() == null) {
            throw new Otherwise(401, "Unauthorized", "send a token, or what else this cluster authenticates by");
        }
        return true;
    }

    private CompletableFuture<Void> requireNamespace(Client client, NamespaceName namespace) {
        return allowed(authorization().allowNamespaceOperationAsync(namespace, NamespaceOperation.GET_TOPICS, client.original(),
                client.role(), client.data())).thenAccept(allowed -> {
                    if (!allowed) {
                        throw new Otherwise(403, "Forbidden", "this role may not see the namespace's topics");
                    }
                });
    }

    private CompletableFuture<Void> requireSuperuser(Client client) {
        boolean isValid = authorization().isValidOriginalPrincipal(client.role(), client.original(), client.data());
        boolean speaksForOther = client.original() != null && !client.original().isBlank();
        CompletableFuture<Boolean> may = CompletableFuture.completedFuture(isValid);
        if (isValid) {
            may = allowed(authorization().isSuperUser(client.role(), client.data())).thenCompose(is -> is && speaksForOther
                    ? allowed(authorization().isSuperUser(client.original(), client.data())) : CompletableFuture.completedFuture(is));
        }
        return may.thenAccept(allowed -> {
            if (!allowed) {
                throw new Otherwise(403, "Forbidden", "only a superuser may see all that a broker has: ask for a namespace or a topic");
            }
        });
    }

    private AuthorizationService authorization() {
        return pulsar.getBrokerService().getAuthorizationService();
    }

    private static CompletableFuture<Boolean> allowed(CompletableFuture<Boolean> asked) {
        return asked.handle((allowed, failure) -> {
            if (failure != null) {
                LOG.info("A request could not be authorized: {}", failure.toString());
            }
            return failure == null && Boolean.TRUE.equals(allowed);
        });
    }

    private static Verdict verdictOf(Throwable failure, ApiTarget target) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof Otherwise otherwise) {
                return otherwise.verdict;
            }
        }
        LOG.warn("The broker could not decide about a request for {}/{}", target.tenant(), target.namespace(), failure);
        return new Refuse(new Problem(503, "Service Unavailable", "the broker cannot tell who owns the topic now: ask again"));
    }

    private static TopicName topicName(ApiTarget target) {
        TopicName name;
        try {
            name = TopicName.get(target.topicName());
        } catch (IllegalArgumentException e) {
            throw new Otherwise(400, "Bad Request", "no topic can have that name: " + e.getMessage());
        }
        // Pulsar authorizes its reading of the name, the daemon answers for the path's text: both must agree.
        if (!name.toString().equals(target.topicName()) || !name.getDomain().value().equals(target.domain())) {
            throw new Otherwise(400, "Bad Request", "no topic can have that name");
        }
        return name;
    }

    private CompletableFuture<Void> authorize(Client client, TopicName topic, Optional<String> subscription, boolean changes) {
        if (!isAuthorizing(client)) {
            return CompletableFuture.completedFuture(null);
        }
        if (subscription.isEmpty()) {
            if (changes) {
                throw new Otherwise(404, "Not Found", "name the subscription that is to be changed");
            }
            return require(client, topic, client.data(), TopicOperation.GET_STATS);
        }
        AuthenticationDataSource data = new AuthenticationDataSubscription(client.data(), subscription.get());
        return require(client, topic, data, TopicOperation.CONSUME).thenCompose(ignored -> changes
                ? require(client, topic, data, TopicOperation.PRODUCE) : CompletableFuture.completedFuture(null));
    }

    private CompletableFuture<Void> require(Client client, TopicName topic, AuthenticationDataSource data, TopicOperation operation) {
        return allowed(authorization().allowTopicOperationAsync(topic, operation, client.original(), client.role(), data))
                .thenAccept(allowed -> {
                    if (!allowed) {
                        throw new Otherwise(403, "Forbidden", switch (operation) {
                            case CONSUME -> "this role may not consume from the subscription, so it may not look at it or change it";
                            case PRODUCE -> "this role may not produce to the topic, so it may look and not change";
                            default -> "this role may not see the topic's stats";
                        });
                    }
                });
    }

    private CompletableFuture<Void> requireTopic(TopicName topic, boolean isSegment) {
        CompletableFuture<Void> policies = requirePolicies(topic.getNamespaceObject());
        if (isSegment) {
            return policies; // it has no partitions
        }
        return policies.thenCompose(ignored -> pulsar.getBrokerService().fetchPartitionedTopicMetadataAsync(topic))
                .thenAccept(metadata -> {
                    if (metadata.partitions > 0) {
                        throw new Otherwise(new Refuse(new Problem(409, "Conflict",
                                "a partitioned topic, whose partitions may be on many brokers: ask each of TOPIC-partition-0, …")
                                .with("partitions", metadata.partitions)));
                    }
                });
    }

    private CompletableFuture<Void> requirePolicies(NamespaceName namespace) {
        return pulsar.getPulsarResources().getNamespaceResources().getPoliciesAsync(namespace).thenAccept(policies -> {
            if (policies.isEmpty()) {
                throw new Otherwise(404, "Not Found", "there is no such namespace");
            }
        });
    }

    private CompletableFuture<Void> requireOwned(TopicName topic, boolean authoritative, boolean https) {
        return pulsar.getNamespaceService().isServiceUnitOwnedAsync(topic).thenCompose(owned -> {
            if (owned) {
                return CompletableFuture.completedFuture(null);
            }
            LookupOptions options = LookupOptions.builder().authoritative(authoritative).readOnly(false)
                    .loadTopicsInBundle(false).build();
            return pulsar.getNamespaceService().getBrokerServiceUrlAsync(topic, options)
                    .thenCompose(found -> pulsar.getNamespaceService().isServiceUnitOwnedAsync(topic).thenAccept(ownedNow -> {
                        if (!ownedNow) {
                            throw new Otherwise(elsewhere(found, https));
                        }
                    }));
        });
    }

    private Verdict elsewhere(Optional<LookupResult> found, boolean https) {
        String url = found.map(LookupResult::getLookupData).map(data -> https ? data.getHttpUrlTls() : data.getHttpUrl()).orElse(null);
        String own = https ? pulsar.getWebServiceAddressTls() : pulsar.getWebServiceAddress();
        if (url == null || url.isEmpty() || url.equals(own)) {
            return new Refuse(new Problem(503, "Service Unavailable", "no broker owns the topic now: ask again"));
        }
        return new Redirect(url, found.get().isAuthoritativeRedirect());
    }
}
